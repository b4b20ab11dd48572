"""A model's name -> its tokenizer without its weights, and the rows that are too long by it.

Used by `strop data check`, and by a server before it takes a job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.config.job import JobConfig
from strop.data.reading import RowFiles
from strop.errors import DataError, ModelError, Problem

if TYPE_CHECKING:
    from strop.inference.chat.answers import TextTokens

_one_at_a_time = threading.Lock()
"""Tokenizers of the hub are not made for several threads, and several rows at once are no faster."""


def prompt_counter(folder: Path) -> Callable[[Any, Any], int]:
    """Tokens of a prompt, as the tokenizer and the template in a model's folder have them.

    Raises:
        ModelError: the tokenizer cannot be loaded.
    """
    from strop.inference.chat.render import Renderer

    renderer = Renderer(_tokenizer(folder))
    return lambda messages, tools: len(renderer.prompt(messages, tools).token_ids)


def text_tokens(folder: Path) -> TextTokens:
    """Messages as token ids, as an offline training has them. Raises `ModelError` as `prompt_counter` does."""
    from transformers import GenerationConfig

    from strop.inference.chat.answers import TextTokens

    tokenizer = _tokenizer(folder)
    named: Any = None
    if (folder / "generation_config.json").is_file():
        named = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
    ends = named if isinstance(named, list) else [named]
    return TextTokens(
        tokenizer, end_ids={one for one in (*ends, tokenizer.eos_token_id) if isinstance(one, int)}
    )


def too_long(config: JobConfig, rows: RowFiles | None = None) -> list[Problem]:
    """Every row of a checked job that is longer than the job allows; none where the model is not here yet,
    or is one that cannot be loaded, which its trainer tells.

    Concurrency:
        One call at a time counts; others wait.
    """
    from strop.learners.model_names import folder_here

    folder = folder_here(config.model.name)
    if folder is None:
        return []
    problems: list[Problem] = []
    with _one_at_a_time:
        try:
            check = _checker(config, folder, RowFiles() if rows is None else rows)
        except ModelError:
            return []
        for dataset in config.datasets:
            try:
                check(Path(dataset.file_name))
            except DataError as error:
                problems += error.problems
    return problems


def _checker(config: JobConfig, folder: Path, rows: RowFiles) -> Callable[[Path], object]:
    from strop.data.dataset import dataset_of
    from strop.data.examples import examples_of

    hyper, form = config.hyper_parameters, config.training_type
    if form.offline:
        tokens = text_tokens(folder)
        return lambda path: examples_of(rows.offline(path, form), max_length=hyper.max_length, tokens=tokens)
    count, limit = prompt_counter(folder), hyper.max_prompt_length
    return lambda path: dataset_of(rows.samples(path), max_prompt_length=limit, prompt_length=count)


def _tokenizer(folder: Path) -> Any:
    files = (folder / name for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"))
    stamp = tuple(path.stat().st_mtime_ns for path in files if path.is_file())
    return _loaded(folder, stamp)


@lru_cache(maxsize=4)
def _loaded(folder: Path, _stamp: tuple[int, ...]) -> Any:
    from transformers import AutoTokenizer
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # of files that hold anything
        raise ModelError(f"the tokenizer in {str(folder)!r} cannot be loaded: {error}") from error
    finally:
        logging.set_verbosity(verbosity)
