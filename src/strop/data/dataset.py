"""Rows of a file -> samples in seeded order: all checked before any work, every bad row reported at once.

A file is JSON lines, plain or packed with gzip, or Parquet. A row is Bailian's `{"messages": [...],
"rollout_extra": {...}}` or Ark's, with `extra` for `rollout_extra`; `ground_truth`, `tools` and `sample_id`
are optional columns beside them. The reference answer is the `ground_truth` column, else the key of that name
in `rollout_extra`; functions get it as `ground_truth`, and `rollout_extra` whole.

Called by `cli` before anything starts; `rl.loop` draws batches from it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from typing_extensions import TypeVar

from strop.data.reading import Rows, read_samples
from strop.data.row_files import count_rows as count_rows
from strop.data.row_files import numbered_lines as numbered_lines
from strop.errors import DataError, Problem, StropError
from strop.locales import msg
from strop.schema.sample import Sample

Item = TypeVar("Item", default=Sample)
"""What a dataset holds: samples to sample answers for, or examples to learn from as they are."""

PromptLength = Callable[[list[dict[str, Any]], list[dict[str, Any]] | None], int]
"""Tokens of a rendered prompt; `ports.Capture.prompt_length`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw(Generic[Item]):
    """The samples of one step; the next goes on `next_index` rows into the order of `next_epoch`."""

    epoch: int
    samples: tuple[Item, ...]
    next_epoch: int
    next_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset(Generic[Item]):
    """All samples of a file, in its order. `notes` are sentences a person should read; `hashes` has the
    SHA-256 of each file that was read, by its path."""

    path: Path
    samples: tuple[Item, ...]
    notes: tuple[str, ...] = ()
    hashes: Mapping[str, str] = field(default_factory=dict[str, str])

    def __len__(self) -> int:
        return len(self.samples)

    def steps_per_epoch(self, batch_size: int) -> int:
        """Full batches in one pass. The rows left over are dropped from that pass; each pass leaves others.

        Raises:
            DataError: not even one full batch.
        """
        if len(self) < batch_size:
            message = f"{len(self)} rows, but one step takes batch_size = {batch_size} of them"
            fix = f"add rows or set batch_size to at most {len(self)}"
            raise DataError(str(self.path), [Problem(place=str(self.path), message=message, fix=fix)])
        return len(self) // batch_size

    def draws(self, batch_size: int, seed: int, *, epoch: int = 0, index: int = 0) -> Iterator[Draw[Item]]:
        """Batches without end, from a position on."""
        self.steps_per_epoch(batch_size)
        while True:
            draw = self.draw(batch_size, batch_size=batch_size, seed=seed, epoch=epoch, index=index)
            yield draw
            epoch, index = draw.next_epoch, draw.next_index

    def draw(self, count: int, *, batch_size: int, seed: int, epoch: int, index: int) -> Draw[Item]:
        """The next `count` rows, at most a batch, from a position on; each epoch has its own seeded order.

        The order of an epoch depends on `seed` and its number alone, so a run that resumes at a position,
        also at an epoch's edge, draws what the uninterrupted one would have. An epoch is over when fewer rows
        than a batch are left in it.
        """
        order = list(self.samples)
        random.Random(f"{seed}/{epoch}").shuffle(order)
        end = index + count
        more = end + batch_size <= len(order)
        return Draw(
            epoch=epoch,
            samples=tuple(order[index:end]),
            next_epoch=epoch if more else epoch + 1,
            next_index=end if more else 0,
        )


def load_dataset(path: Path, *, max_prompt_length: int, prompt_length: PromptLength) -> Dataset:
    """Read and check a whole file of rows. A byte-order mark, CRLF and blank lines are fine.

    Raises:
        DataError: every bad row, each with `file:line`, field and fix.
    """
    rows = read_samples(path)
    return dataset_of(rows, max_prompt_length=max_prompt_length, prompt_length=prompt_length)


def dataset_of(rows: Rows[Sample], *, max_prompt_length: int, prompt_length: PromptLength) -> Dataset:
    """As `load_dataset`, of a file that has been read."""
    path = rows.path
    problems = [*rows.problems]
    for sample in rows.good:
        problems += _length_problems(sample, f"{path}:{sample.row}", max_prompt_length, prompt_length)
    if problems:
        raise DataError(str(path), sorted(problems, key=row_of))
    notes = [
        msg(
            "{path}: functions do not get the key {key!r} (rows that have it: {count}); move "
            "it into rollout_extra",
            path=path,
            key=key,
            count=count,
        )
        for key, count in rows.unread.items()
    ]
    notes += _repeated_prompts(rows.good, path)
    return Dataset(path=path, samples=rows.good, notes=tuple(notes), hashes={str(path): rows.sha256})


def row_of(problem: Problem) -> int:
    """The row that a problem is of; 0 for the whole file."""
    row = problem.place.rpartition(":")[2]
    return int(row) if row.isdigit() else 0


def joined(parts: Sequence[Dataset[Item]], *, id_of: Callable[[Item], str]) -> Dataset[Item]:
    """The files of one kind as one dataset, in their order.

    Raises:
        DataError: an id that stands in two of them.
    """
    if len(parts) == 1:
        return parts[0]
    first: dict[str, Path] = {}
    problems: list[Problem] = []
    for part in parts:
        for item in part.samples:
            before = first.setdefault(id_of(item), part.path)
            if before is not part.path:
                message = f"sample_id: {id_of(item)!r} is also used in {before}"
                fix = "give each row its own, or rename one of the files: ids are made from the file's name"
                problems.append(Problem(place=str(part.path), message=message, fix=fix))
    if problems:
        raise DataError(str(parts[-1].path), problems)
    return Dataset(
        path=parts[0].path,
        samples=tuple(item for part in parts for item in part.samples),
        notes=tuple(note for part in parts for note in part.notes),
        hashes={path: sha256 for part in parts for path, sha256 in part.hashes.items()},
    )


def overlap_notes(training: Dataset, validation: Dataset) -> tuple[str, ...]:
    """Say so when prompts to be validated on are also trained on: such a curve flatters."""
    trained = {_prompt_key(sample) for sample in training.samples}
    repeated = [sample.row for sample in validation.samples if _prompt_key(sample) in trained]
    if not repeated:
        return ()
    return (
        msg(
            "{path}: {num_repeated} of {num_validation} prompts are also in {path2} (first: "
            "row {repeated}); validating on them says little",
            path=validation.path,
            num_repeated=len(repeated),
            num_validation=len(validation),
            path2=training.path,
            repeated=repeated[0],
        ),
    )


def _length_problems(
    sample: Sample, place: str, max_prompt_length: int, prompt_length: PromptLength
) -> list[Problem]:
    try:
        length = prompt_length(sample.messages, sample.tools)
    except (StropError, ValueError) as error:
        message = f"messages: the model's chat template rejects them: {error}"
        return [Problem(place=place, message=message)]
    if length <= max_prompt_length:
        return []
    message = f"messages: the prompt has {length} tokens, max_prompt_length is {max_prompt_length}"
    return [Problem(place=place, message=message, fix=msg("shorten it or raise max_prompt_length"))]


def _repeated_prompts(samples: Iterable[Sample], path: Path) -> list[str]:
    first: dict[str, int] = {}
    repeats = [
        (row, sample.row)
        for sample in samples
        if (row := first.setdefault(_prompt_key(sample), sample.row)) != sample.row
    ]
    if not repeats:
        return []
    row, again = repeats[0]
    return [
        msg(
            "{path}: prompts that repeat an earlier one: {num_repeats} (first: row {again} "
            "repeats row {row})",
            path=path,
            num_repeats=len(repeats),
            again=again,
            row=row,
        )
    ]


def _prompt_key(sample: Sample) -> str:
    return json.dumps([sample.messages, sample.tools], sort_keys=True)
