"""A checked job -> its precisions and its rows as this machine has them.

Loads no torch: a run that has nothing left to do is found out by this alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from strop.cli.text import t
from strop.config.job import JobConfig
from strop.config.rules import effective_keys
from strop.data.dataset import Dataset, joined
from strop.errors import DataError, Problem
from strop.processor import has_fast_bfloat16

Item = TypeVar("Item")


def with_dtypes(config: JobConfig) -> JobConfig:
    """Put the processor's fastest dtype where the job says `auto`, so that the record holds what was used."""
    hyper = config.hyper_parameters
    fastest = "bfloat16" if has_fast_bfloat16() else "float32"
    known = effective_keys(config.training_type)
    auto = [
        name for name in ("train_dtype", "sampling_dtype") if name in known and getattr(hyper, name) == "auto"
    ]
    chosen = dict.fromkeys(auto, fastest)
    training = config.training.model_copy(update={"hyper_parameters": hyper.model_copy(update=chosen)})
    origins = {f"training.hyper_parameters.{name}": "this machine" for name in auto}
    resolved = config.model_copy(update={"training": training})
    return resolved.with_origins(origins) if config.origins else resolved


def load_both(
    config: JobConfig, load: Callable[[Path], Dataset[Item]], *, id_of: Callable[[Item], str]
) -> tuple[Dataset[Item], Dataset[Item] | None]:
    """The job's training and validation files through `load`, every bad row of all of them in one error."""
    loaded: dict[str, list[Dataset[Item]]] = {}
    problems: list[Problem] = []
    for dataset in config.datasets:
        try:
            loaded.setdefault(dataset.type, []).append(load(Path(dataset.file_name)))
        except DataError as error:
            problems += error.problems
    if problems:
        raise DataError(t("datasets", "数据集"), problems)
    held_out = loaded.get("validation")
    return (
        joined(loaded["training"], id_of=id_of),
        joined(held_out, id_of=id_of) if held_out is not None else None,
    )
