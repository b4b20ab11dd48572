"""A row to be learned from without sampling, as the token sequences that it teaches."""

from __future__ import annotations

from dataclasses import dataclass

from strop.schema.batch import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One assistant message as tokens: what the model sees, and what it is to say after it.

    `index` is its place among the messages. `completion_ids` end with the token that ends the turn, where the
    template has one. `whole` is False where the template left a part of the message out.
    """

    index: int
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What one row teaches: sequences, and which of them is preferred to which.

    The `weight` of a sequence is that of each of its taught tokens in the mean over tokens; 0 for an answer
    that is only compared.

    Shapes:
        pairs: (preferred, rejected) as indices into `sequences`.
    """

    example_id: str
    row: int
    sequences: tuple[Sequence, ...]
    pairs: tuple[tuple[int, int], ...] = ()
