"""Trajectory -> Sequences: which of its tokens stand in one context, and which of those the policy sampled.

Pure Python. `rl.batch` calls it. The one rule: a turn extends a sequence only if the turn's prompt has
that sequence's ids so far as an exact prefix. So no token is ever trained in a context in which it was not
sampled, whatever the chat template or the agent did between two calls.
"""

from __future__ import annotations

from collections.abc import Iterable

from strop.schema.batch import Sequence
from strop.schema.trajectory import Trajectory, Turn


class _Draft:
    """A sequence while turns may still extend it."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.loss_mask: list[bool] = []
        self.behaviour_logprobs: list[float] = []
        self.temperatures: list[float] = []

    def goes_before(self, prompt_ids: tuple[int, ...]) -> bool:
        length = len(self.token_ids)
        return length <= len(prompt_ids) and list(prompt_ids[:length]) == self.token_ids

    def extend(self, turn: Turn) -> None:
        given = turn.prompt_ids[len(self.token_ids) :]
        sampled = turn.completion_ids
        self.token_ids += (*given, *sampled)
        self.loss_mask += [False] * len(given) + [True] * len(sampled)
        self.behaviour_logprobs += (*[0.0] * len(given), *turn.behaviour_logprobs)
        self.temperatures += [1.0] * len(given) + [turn.temperature] * len(sampled)


def sequences_of(trajectory: Trajectory, *, group_id: str) -> tuple[Sequence, ...]:
    """Join turns into sequences by the exact-prefix rule; every sampled token gets loss exactly once.

    A turn extends the longest sequence that its prompt starts with, else it begins a new one: branches,
    `n > 1` choices, subagents and templates that drop earlier text give siblings. Turns are taken by length
    and ids of their prompt, not by the order they ended in, so that calls made at once give the same
    sequences however they raced; a prompt that contains an answer is longer than the prompt of that answer.

    Returns:
        Sequences whose weight is their share of the sampled tokens; empty when nothing was sampled.
    Raises:
        ValueError: a turn whose fields disagree, that has no prompt, or that was sampled greedily.
    """
    drafts: list[_Draft] = []
    for turn in _by_content(trajectory.turns):
        _check(turn, trajectory.rollout_id)
        before = [draft for draft in drafts if draft.goes_before(turn.prompt_ids)]
        draft = max(before, key=lambda draft: len(draft.token_ids), default=None)
        if draft is None:
            draft = _Draft()
            drafts.append(draft)
        draft.extend(turn)
    num_sampled = sum(sum(draft.loss_mask) for draft in drafts)
    return tuple(
        Sequence(
            rollout_id=trajectory.rollout_id,
            group_id=group_id,
            token_ids=tuple(draft.token_ids),
            loss_mask=tuple(draft.loss_mask),
            behaviour_logprobs=tuple(draft.behaviour_logprobs),
            temperatures=tuple(draft.temperatures),
            weight=sum(draft.loss_mask) / num_sampled,
        )
        for draft in drafts
    )


def _by_content(turns: Iterable[Turn]) -> list[Turn]:
    sampled = (turn for turn in turns if turn.completion_ids)
    return sorted(
        sampled,
        key=lambda turn: (
            len(turn.prompt_ids),
            turn.prompt_ids,
            turn.completion_ids,
            turn.temperature,
            turn.behaviour_logprobs,
        ),
    )


def _check(turn: Turn, rollout_id: str) -> None:
    place = f"rollout {rollout_id!r}, turn {turn.index}"
    if not turn.prompt_ids:
        raise ValueError(f"{place}: no prompt ids; the first token of a sequence cannot be a sampled one")
    if len(turn.behaviour_logprobs) != len(turn.completion_ids):
        found = f"{len(turn.completion_ids)} sampled ids, {len(turn.behaviour_logprobs)} behaviour logprobs"
        raise ValueError(f"{place}: {found}")
    if turn.temperature <= 0.0:
        raise ValueError(
            f"{place}: sampled at temperature {turn.temperature}; a greedy choice has nothing to train"
        )
