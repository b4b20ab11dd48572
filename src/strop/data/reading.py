"""A file of rows -> its rows, what is wrong with them, their number and the file's hash, all of one reading.

`RowFiles` keeps what was read: checking a job, counting its steps and measuring its prompts is one reading of
each file.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from strop.data.offline_rows import OfflineRow, read_offline_row
from strop.data.row_files import numbered_lines
from strop.data.rows import read_row
from strop.errors import DataError, Problem
from strop.locales import msg
from strop.schema.sample import Sample
from strop.schema.training import TrainingType

Row = TypeVar("Row")
Key = TypeVar("Key")

ReadRow = Callable[[bytes, str, int], tuple[Row | None, list[Problem], list[str]]]
"""Line, place and number -> the row, or None where it is bad; its problems; keys that nothing reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Generic[Row]):
    """What one reading of a file found. `good` are the rows that can be used, `num_rows` counts the bad, too;
    `unread` counts rows by the key in them that nothing reads."""

    path: Path
    num_rows: int
    sha256: str
    good: tuple[Row, ...]
    problems: tuple[Problem, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict[str, int])


def read_samples(path: Path) -> Rows[Sample]:
    """Rows to sample answers for.

    Raises:
        DataError: the file itself cannot be read.
    """

    def read(line: bytes, place: str, row: int) -> tuple[Sample | None, list[Problem], list[str]]:
        return read_row(line, place, row=row, file_stem=path.stem)

    rows = _read(path, read, id_of=lambda sample: (sample.sample_id, sample.row))
    if rows.num_rows:
        return rows
    empty = Problem(place=str(path), message=msg("no rows"), fix=msg("write one JSON object a line"))
    return replace(rows, problems=(empty,))


def read_offline(path: Path, form: TrainingType) -> Rows[OfflineRow]:
    """Rows to learn from as they are.

    Raises:
        DataError: the file itself cannot be read.
    """

    def read(line: bytes, place: str, row: int) -> tuple[OfflineRow | None, list[Problem], list[str]]:
        return read_offline_row(line, place, row=row, file_stem=path.stem, form=form)

    return _read(path, read, id_of=lambda one: (one.row_id, one.row))


class RowFiles:
    """Files of rows, each of which is read once.

    Concurrency:
        For one thread.
    """

    def __init__(self) -> None:
        self._samples: dict[Path, Rows[Sample] | DataError] = {}
        self._offline: dict[tuple[Path, TrainingType], Rows[OfflineRow] | DataError] = {}

    def samples(self, path: Path) -> Rows[Sample]:
        """As `read_samples`."""
        return _once(self._samples, path, lambda: read_samples(path))

    def offline(self, path: Path, form: TrainingType) -> Rows[OfflineRow]:
        """As `read_offline`."""
        return _once(self._offline, (path, form), lambda: read_offline(path, form))

    def num_rows(self, path: Path, form: TrainingType) -> int:
        """Rows of a file, the bad ones included.

        Raises:
            DataError: the file itself cannot be read.
        """
        return self._rows(path, form).num_rows

    def problems(self, path: Path, form: TrainingType) -> Sequence[Problem]:
        """Everything wrong with a file, lengths aside."""
        try:
            return self._rows(path, form).problems
        except DataError as error:
            return error.problems

    def _rows(self, path: Path, form: TrainingType) -> Rows[Any]:
        return self.offline(path, form) if form.offline else self.samples(path)


def _read(path: Path, read: ReadRow[Row], *, id_of: Callable[[Row], tuple[str, int]]) -> Rows[Row]:
    digest = hashlib.sha256()
    good: list[Row] = []
    problems: list[Problem] = []
    unread: Counter[str] = Counter()
    first: dict[str, int] = {}
    num_rows = 0
    for number, line in numbered_lines(path, digest=digest):
        num_rows += 1
        place = f"{path}:{number}"
        row, found, extra = read(line, place, number)
        problems += found
        unread.update(extra)
        if row is None:
            continue
        good.append(row)
        own_id, at = id_of(row)
        if (before := first.setdefault(own_id, at)) != at:
            message = f"sample_id: {own_id!r} is already the id of row {before}"
            problems.append(Problem(place=place, message=message, fix=msg("give each row its own")))
    return Rows(
        path=path,
        num_rows=num_rows,
        sha256=digest.hexdigest(),
        good=tuple(good),
        problems=tuple(problems),
        unread=unread,
    )


def _once(kept: dict[Key, Rows[Row] | DataError], key: Key, read: Callable[[], Rows[Row]]) -> Rows[Row]:
    if key not in kept:
        try:
            kept[key] = read()
        except DataError as error:
            kept[key] = error
    found = kept[key]
    if isinstance(found, DataError):
        raise found
    return found
