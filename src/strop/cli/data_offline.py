"""Files of rows that are learned from as they are -> every problem, and what they teach: `strop data check --type`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.config.job import TrainingType
from strop.errors import DataError, Problem

if TYPE_CHECKING:
    from strop.data.dataset import Dataset
    from strop.inference.chat.answers import TextTokens
    from strop.schema.example import Example

_NO_LIMIT = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineFile:
    """A file that is in order. Without a model's tokenizer `lengths` are characters, and `taught` is not known.

    Units:
        lengths: tokens of each example, its longest sequence. taught: tokens that are learned to be said.
    """

    file: str
    rows: int
    pairs: int
    taught: int | None
    lengths: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        from strop.cli.data import quantiles

        lengths = quantiles(self.lengths) | {"total": sum(self.lengths)}
        return {**asdict(self), "lengths": lengths}


def check_offline(
    paths: Sequence[Path], form: TrainingType, *, model: str | None, max_length: int | None
) -> tuple[list[OfflineFile], list[Problem], list[str]]:
    """The files that are in order, every problem of the others, and notes for a person.

    Raises:
        ModelError: the model's tokenizer cannot be loaded.
    """
    tokens = _tokens(model) if model is not None else None
    files: list[OfflineFile] = []
    problems: list[Problem] = []
    notes: list[str] = []
    for path in paths:
        try:
            if tokens is None:
                files.append(_by_characters(path, form))
            else:
                dataset = _loaded(path, form, max_length or _NO_LIMIT, tokens)
                files.append(_by_tokens(path, dataset))
                notes += dataset.notes
        except DataError as error:
            problems += error.problems
    return files, problems, notes


def _by_characters(path: Path, form: TrainingType) -> OfflineFile:
    from strop.data.reading import read_offline

    rows = read_offline(path, form)
    problems = [*rows.problems]
    if not rows.num_rows:
        problems.append(Problem(place=str(path), message="no rows", fix="write one JSON object a line"))
    if problems:
        raise DataError(str(path), problems)
    lengths = tuple(
        sum(len(str(one.get("content") or "")) for one in row.messages) + len(row.text) for row in rows.good
    )
    pairs = sum(len(row.candidates) > 1 for row in rows.good)
    return OfflineFile(file=str(path), rows=len(lengths), pairs=pairs, taught=None, lengths=lengths)


def _loaded(path: Path, form: TrainingType, max_length: int, tokens: TextTokens) -> Dataset[Example]:
    from strop.data.examples import load_examples

    return load_examples(path, form, max_length=max_length, tokens=tokens)


def _by_tokens(path: Path, dataset: Dataset[Example]) -> OfflineFile:
    examples = dataset.samples
    return OfflineFile(
        file=str(path),
        rows=len({one.row for one in examples}),
        pairs=sum(len(one.pairs) for one in examples),
        taught=sum(sum(each.loss_mask) for one in examples for each in one.sequences if each.weight > 0),
        lengths=tuple(max(len(each.token_ids) for each in one.sequences) for one in examples),
    )


def _tokens(model: str) -> TextTokens:
    """As a training has them; the weights are not loaded."""
    from strop.cli.row_lengths import text_tokens
    from strop.learners.models import resolve

    return text_tokens(resolve(model, on_progress=lambda text: print(text, file=sys.stderr)))
