"""Scored groups -> the same with rewards shaped by length, and who leaves the loss: answers too long.

Pure Python. `rl.loop` calls it between the dynamic sampling, which judges rewards as the functions gave
them, and the advantage. Whether an answer was cut off is the engine's word (`finish_reason`), never a guess
from its last token. Validation is not shaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

from strop.config.job import HyperParameters, TruncationPolicy
from strop.schema.trajectory import Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPlan:
    """What length costs.

    Units:
        limit: tokens that one answer may have. buffer: the last tokens of it, in which the penalty grows from
        0 to `factor`; 0 for none.
    """

    limit: int
    buffer: int
    factor: float
    truncation: TruncationPolicy

    @property
    def shapes(self) -> bool:
        """Whether any reward may change."""
        return self.buffer > 0 or self.truncation is TruncationPolicy.PENALISE


def length_plan(hyper: HyperParameters) -> LengthPlan:
    return LengthPlan(
        limit=hyper.longest_answer,
        buffer=hyper.overlong_buffer,
        factor=hyper.overlong_penalty_factor,
        truncation=hyper.truncation_policy,
    )


def overlong_penalty(length: int, *, limit: int, buffer: int, factor: float = 1.0) -> float:
    """What an answer of `length` tokens loses: nothing up to the buffer, all of `factor` from the limit on.

    Source:
        DAPO, arXiv:2503.14476, equation 13, with `factor` as in verl.

    >>> [overlong_penalty(length, limit=100, buffer=20) for length in (80, 90, 100, 101)]
    [0.0, -0.5, -1.0, -1.0]
    """
    beyond = length - (limit - buffer)
    return -factor * min(1.0, beyond / buffer) if buffer > 0 and beyond > 0 else 0.0


def shape_rewards(groups: Sequence[Group], plan: LengthPlan) -> tuple[Group, ...]:
    """Take the penalty off the reward of every scored rollout; `Trajectory.score` still has what was given.

    The longest answer of a rollout counts. One that was cut off loses all of `factor` where there is a buffer
    or the policy says `penalise`, however short it is: a full context cuts earlier than `limit`.
    """
    if not plan.shapes:
        return tuple(groups)
    return tuple(
        replace(group, trajectories=tuple(_shaped(one, plan) for one in group.trajectories))
        for group in groups
    )


def masked_rollouts(groups: Iterable[Group], plan: LengthPlan) -> frozenset[str]:
    """The rollouts that leave the loss, numerator and denominator, with their group's baseline untouched."""
    if plan.truncation is not TruncationPolicy.MASK:
        return frozenset()
    return frozenset(one.rollout_id for group in groups for one in group.survivors if one.truncated)


def length_metrics(groups: Iterable[Group], masked: Set[str], plan: LengthPlan) -> dict[str, float]:
    """What length cost in this step, as far as the plan makes it cost anything."""
    survivors = [one for group in groups for one in group.survivors]
    count = len(survivors)
    values: dict[str, float] = {}
    if plan.shapes:
        total = math.fsum(one.overlong_penalty for one in survivors)
        values["critic/overlong_penalty/mean"] = total / count if count else math.nan
    if plan.truncation is TruncationPolicy.MASK:
        values["trajectory/masked_ratio"] = len(masked) / count if count else math.nan
    return values


def _shaped(trajectory: Trajectory, plan: LengthPlan) -> Trajectory:
    if not trajectory.scored or trajectory.reward is None:
        return trajectory
    if trajectory.truncated and plan.truncation is TruncationPolicy.MASK:
        return trajectory
    if trajectory.truncated:
        penalty = -plan.factor
    else:
        longest = max(len(turn.completion_ids) for turn in trajectory.turns)
        penalty = overlong_penalty(longest, limit=plan.limit, buffer=plan.buffer, factor=plan.factor)
    return replace(trajectory, reward=trajectory.reward + penalty, overlong_penalty=penalty)
