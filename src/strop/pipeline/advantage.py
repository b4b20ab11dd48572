"""Reward -> advantage: how much better each trajectory did than its own group.

Pure Python: no torch, no I/O. `pipeline.loop` calls it between reward and batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from strop.pipeline.gae import gae as gae
from strop.schema.trajectory import Group

AdvantageKind = Literal["grpo", "dr_grpo", "rloo", "reinforce_pp_baseline"]
"""GSPO differs from GRPO in its ratio only; both take `grpo` here."""

STD_EPSILON = 1e-6
"""Added to the group's standard deviation; with the sample std (n - 1) this is verl's convention."""


def group_advantages(kind: AdvantageKind, rewards_G: Sequence[float]) -> list[float]:
    """Centre each reward on what its group got; `grpo` also divides by the group's standard deviation.

    Shapes:
        rewards_G: (G,) one scalar a trajectory, all sampled from the same sample.
    Returns:
        (G,) advantages that sum to 0. Exactly 0.0 when the rewards are equal up to rounding.
    Raises:
        ValueError: fewer than two rewards, since a group of one has no baseline; a reward that is not finite;
            an unknown kind.
    Source:
        grpo: arXiv:2402.03300, sample std. dr_grpo: arXiv:2503.20783. rloo: arXiv:2402.14740.
        reinforce_pp_baseline: arXiv:2501.03262, before its whitening over the batch.

    >>> group_advantages("dr_grpo", [1.0, 0.0, 0.0, 1.0])
    [0.5, -0.5, -0.5, 0.5]
    >>> group_advantages("grpo", [0.1 + 0.2, 0.3])
    [0.0, 0.0]
    """
    if kind not in get_args(AdvantageKind):
        raise ValueError(f"kind must be one of {', '.join(get_args(AdvantageKind))}; found {kind!r}")
    size = len(rewards_G)
    if size < 2:
        raise ValueError(f"a group needs at least two rewards to have a baseline, found {size}")
    if not all(math.isfinite(reward) for reward in rewards_G):
        raise ValueError(f"rewards must be finite, found {list(rewards_G)!r}")
    if rewards_are_equal(rewards_G):
        return [0.0] * size
    # fsum is exact, so the order of the members changes nothing.
    mean = math.fsum(rewards_G) / size
    centred_G = [reward - mean for reward in rewards_G]
    match kind:
        case "grpo":
            std = math.sqrt(math.fsum(value * value for value in centred_G) / (size - 1))
            return [value / (std + STD_EPSILON) for value in centred_G]
        case "rloo":
            return [value * size / (size - 1) for value in centred_G]
        case "dr_grpo" | "reinforce_pp_baseline":
            return centred_G


def rewards_are_equal(rewards_G: Sequence[float]) -> bool:
    """Whether they differ by no more than floating-point rounding, as 0.1 + 0.2 and 0.3 do."""
    return math.isclose(min(rewards_G), max(rewards_G), rel_tol=1e-9, abs_tol=1e-12)


def step_advantages(kind: AdvantageKind, groups: Iterable[Group]) -> dict[str, float]:
    """The advantage of every rollout that has one, by `rollout_id`.

    A group of fewer than two survivors is left out; failed members never touch their siblings' baseline.
    """
    advantages: dict[str, float] = {}
    for group in groups:
        survivors = group.survivors
        if len(survivors) < 2:
            continue
        rewards_G = [trajectory.reward for trajectory in survivors if trajectory.reward is not None]
        for trajectory, value in zip(survivors, group_advantages(kind, rewards_G), strict=True):
            advantages[trajectory.rollout_id] = value
    return advantages
