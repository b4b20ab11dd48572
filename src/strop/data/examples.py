"""JSON lines -> examples: every row checked and made into tokens before any work, every bad row told at once.

The offline counterpart of `data.dataset`, whose `Dataset` it fills. Called by `cli` before anything
starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from strop.data.dataset import Dataset, row_of
from strop.data.offline_rows import OfflineRow
from strop.data.reading import Rows, read_offline
from strop.errors import DataError, Problem, StropError
from strop.locales import msg
from strop.schema import batch
from strop.schema.example import Answer, Example
from strop.schema.training import TrainingType


class Tokens(Protocol):
    """Text -> what the model reads and says; for rows that are learned from as they are."""

    def answers(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> list[Answer]:
        """Each assistant message, in order, with the context in which it is said."""
        ...

    def text(self, text: str) -> tuple[int, ...]:
        """A whole document, with the tokens that begin and end one."""
        ...


def load_examples(path: Path, form: TrainingType, *, max_length: int, tokens: Tokens) -> Dataset[Example]:
    """Read and check a whole file of rows. A byte-order mark, CRLF and blank lines are fine.

    A conversation longer than `max_length` is a problem; a longer plain text is cut into pieces, each an
    example.

    Raises:
        DataError: every bad row, each with `file:line`, field and fix.
    """
    return examples_of(read_offline(path, form), max_length=max_length, tokens=tokens)


def examples_of(rows: Rows[OfflineRow], *, max_length: int, tokens: Tokens) -> Dataset[Example]:
    """As `load_examples`, of a file that has been read."""
    path = rows.path
    examples: list[Example] = []
    problems = [*rows.problems]
    silent: list[int] = []
    cut_short: list[int] = []
    for row in rows.good:
        place = f"{path}:{row.row}"
        try:
            made, complete = _examples(row, row.row, max_length, tokens)
        except (StropError, ValueError) as error:
            problems.append(Problem(place=place, message=msg("messages: {error}", error=error)))
            continue
        problems += [problem for one in made if (problem := _too_long(one, place, max_length))]
        examples += made
        silent += [] if made else [row.row]
        cut_short += [] if complete else [row.row]
    if not examples and not problems:
        problems.append(Problem(place=str(path), message=msg("no row teaches anything"), fix=msg("add some")))
    if problems:
        raise DataError(str(path), sorted(problems, key=row_of))
    notes: list[str] = [
        msg(
            "{path}: the key {key!r} is not read (rows that have it: {count})",
            path=path,
            key=key,
            count=count,
        )
        for key, count in rows.unread.items()
    ]
    if silent:
        notes.append(
            msg(
                "{path}: rows that teach nothing, without text or with equal scores: "
                "{num_silent} (first: row {silent})",
                path=path,
                num_silent=len(silent),
                silent=silent[0],
            )
        )
    if cut_short:
        notes.append(
            msg(
                "{path}: rows in which the chat template leaves out part of an answer, which "
                "is not taught: {num_cut_short} (first: row {cut_short})",
                path=path,
                num_cut_short=len(cut_short),
                cut_short=cut_short[0],
            )
        )
    hashes = {str(path): rows.sha256}
    return Dataset(path=path, samples=tuple(examples), notes=tuple(notes), hashes=hashes)


def overlap_notes(training: Dataset[Example], validation: Dataset[Example]) -> tuple[str, ...]:
    """Say so when rows to be validated on are also trained on: such a curve flatters."""
    trained = {_content(example) for example in training.samples}
    repeated = [example.row for example in validation.samples if _content(example) in trained]
    if not repeated:
        return ()
    return (
        msg(
            "{path}: {num_repeated} of {num_validation} rows are also in {path2} (first: row "
            "{repeated}); validating on them says little",
            path=validation.path,
            num_repeated=len(repeated),
            num_validation=len(validation),
            path2=training.path,
            repeated=repeated[0],
        ),
    )


def _content(example: Example) -> frozenset[tuple[int, ...]]:
    return frozenset(sequence.token_ids for sequence in example.sequences)


def _examples(row: OfflineRow, number: int, max_length: int, tokens: Tokens) -> tuple[list[Example], bool]:
    """What a row teaches, and whether the template rendered its answers whole."""
    if row.text:
        return list(_pieces(row, number, tokens.text(row.text), max_length)), True
    if row.candidates:
        return _compared(row, number, tokens)
    answers = tokens.answers(row.messages, row.tools)
    sequences = _taught(row.row_id, answers, row.weights)
    if not sequences:
        return [], True
    example = Example(example_id=row.row_id, row=number, sequences=tuple(sequences))
    return [example], all(answer.whole for answer in answers if row.weights[answer.index])


def _pieces(row: OfflineRow, number: int, token_ids: tuple[int, ...], max_length: int) -> Iterator[Example]:
    """Cut a text so that each token but the first is taught once.

    A piece begins with the last token of the one before, as context.
    """
    for index, start in enumerate(range(0, len(token_ids) - 1, max_length - 1)):
        piece = token_ids[start : start + max_length]
        mask = (False,) + (True,) * (len(piece) - 1)
        name = f"{row.row_id}.{index}"
        yield Example(example_id=name, row=number, sequences=(_sequence(name, 0, piece, mask, 1.0),))


def _compared(row: OfflineRow, number: int, tokens: Tokens) -> tuple[list[Example], bool]:
    """Every pair of candidates with different scores; the better one is preferred."""
    answers = [
        tokens.answers([*row.messages, candidate.message], row.tools)[-1] for candidate in row.candidates
    ]
    scores = [candidate.score for candidate in row.candidates]
    pairs = tuple(
        (better, worse)
        for better in range(len(scores))
        for worse in range(len(scores))
        if scores[better] > scores[worse]
    )
    weights = [candidate.lm_weight for candidate in row.candidates]
    if not pairs and not any(weights):
        return [], True
    for better, worse in pairs:
        if answers[better].completion_ids == answers[worse].completion_ids:
            raise ValueError(
                f"candidates {better} and {worse} have different scores but are the same to the model"
            )
    if any(not answer.completion_ids for answer in answers):
        raise ValueError("an answer has no tokens to compare")
    sequences = tuple(
        _sequence(
            row.row_id,
            index,
            (*answer.prompt_ids, *answer.completion_ids),
            (False,) * len(answer.prompt_ids) + (True,) * len(answer.completion_ids),
            weight,
        )
        for index, (answer, weight) in enumerate(zip(answers, weights, strict=True))
    )
    example = Example(example_id=row.row_id, row=number, sequences=sequences, pairs=pairs)
    return [example], all(answer.whole for answer in answers)


def _taught(row_id: str, answers: Sequence[Answer], weights: Mapping[int, float]) -> list[batch.Sequence]:
    """Join answers into sequences: one extends another if its context has that exactly as prefix.

    A template that drops earlier thinking gives several sequences, each answer in the context it will be
    asked in. Answers of different weights in one context are sequences over the same tokens, which a pack
    lays out once.
    """
    drafts: list[tuple[list[int], list[float]]] = []
    for answer in answers:
        weight = weights[answer.index]
        if not weight or not answer.completion_ids:
            continue
        fitting = [one for one in drafts if answer.prompt_ids[: len(one[0])] == tuple(one[0])]
        draft = max(fitting, key=lambda one: len(one[0]), default=None)
        if draft is None:
            drafts.append(([], []))
        token_ids, token_weights = draft or drafts[-1]
        context = answer.prompt_ids[len(token_ids) :]
        token_ids += (*context, *answer.completion_ids)
        token_weights += [0.0] * len(context) + [weight] * len(answer.completion_ids)
    made: list[batch.Sequence] = []
    for token_ids, token_weights in drafts:
        for weight in sorted(set(token_weights) - {0.0}, reverse=True):
            mask = tuple(one == weight for one in token_weights)
            made.append(_sequence(row_id, len(made), tuple(token_ids), mask, weight))
    return made


def _sequence(
    example_id: str, index: int, token_ids: tuple[int, ...], mask: tuple[bool, ...], weight: float
) -> batch.Sequence:
    nothing = (0.0,) * len(token_ids)
    return batch.Sequence(
        rollout_id=f"{example_id}/{index}",
        group_id=example_id,
        token_ids=token_ids,
        loss_mask=mask,
        behaviour_logprobs=nothing,
        temperatures=(1.0,) * len(token_ids),
        weight=weight,
    )


def _too_long(example: Example, place: str, max_length: int) -> Problem | None:
    longest = max(len(sequence.token_ids) for sequence in example.sequences)
    if longest <= max_length:
        return None
    message = f"messages: the conversation has {longest} tokens, max_length is {max_length}"
    return Problem(place=place, message=message, fix=msg("shorten it or raise max_length"))
