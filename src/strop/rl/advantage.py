"""Reward -> advantage: how much better each trajectory did than its own group.

Pure Python: no torch, no I/O. `rl.loop` calls it between reward and batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from strop.algorithms import load_named
from strop.rl.gae import LARGEST
from strop.rl.gae import gae as gae
from strop.schema.trajectory import Group

GroupKind = Literal["grpo", "dr_grpo", "rloo", "reinforce_pp_baseline"]
"""GSPO, DAPO, CISPO and SAPO differ from GRPO in their loss only; all take `grpo` here."""

STD_EPSILON = 1e-6
"""Added to the group's standard deviation; with the sample std (n - 1) this is verl's convention."""


WHITEN_EPSILON = 1e-8
"""Added to the batch's variance when advantages are whitened; verl's convention."""


def group_advantages(kind: str, rewards_G: Sequence[float]) -> list[float]:
    """Centre each reward on what its group got; `grpo` also divides by the group's standard deviation.

    A plugin's kind is `module:function`, a function of the rewards; it is not asked about equal ones.

    Shapes:
        rewards_G: (G,) one scalar a trajectory, all sampled from the same sample.
    Returns:
        (G,) advantages that sum to 0. Exactly 0.0 when the rewards are equal up to rounding.
    Raises:
        ValueError: fewer than two rewards, since a group of one has no baseline; a reward that is not finite
            or beyond `LARGEST`, where squares overflow; an unknown kind.
    Source:
        grpo: arXiv:2402.03300, sample std. dr_grpo: arXiv:2503.20783. rloo: arXiv:2402.14740.
        reinforce_pp_baseline: arXiv:2501.03262, before its whitening over the batch.

    >>> group_advantages("dr_grpo", [1.0, 0.0, 0.0, 1.0])
    [0.5, -0.5, -0.5, 0.5]
    >>> group_advantages("grpo", [0.1 + 0.2, 0.3])
    [0.0, 0.0]
    """
    if kind not in get_args(GroupKind) and ":" not in kind:
        raise ValueError(f"kind must be one of {', '.join(get_args(GroupKind))}; found {kind!r}")
    size = len(rewards_G)
    if size < 2:
        raise ValueError(f"a group needs at least two rewards to have a baseline, found {size}")
    if not all(math.isfinite(reward) for reward in rewards_G):
        raise ValueError(f"rewards must be finite, found {list(rewards_G)!r}")
    if (largest := max(map(abs, rewards_G))) > LARGEST:
        raise ValueError(f"rewards must be within {LARGEST:g} of 0, found {largest:g}: scale them down")
    if rewards_are_equal(rewards_G):
        return [0.0] * size
    if ":" in kind:
        return [float(value) for value in load_named(kind)(rewards_G)]
    # fsum is exact, so the order of the members changes nothing.
    mean = math.fsum(rewards_G) / size
    centred_G = [float(reward) - mean for reward in rewards_G]  # an array's numbers become plain ones
    match kind:
        case "grpo":
            std = math.sqrt(math.fsum(value * value for value in centred_G) / (size - 1))
            return [value / (std + STD_EPSILON) for value in centred_G]
        case "rloo":
            return [value * size / (size - 1) for value in centred_G]
        case _:
            return centred_G


def rewards_are_equal(rewards_G: Sequence[float]) -> bool:
    """Whether they differ by no more than floating-point rounding, as 0.1 + 0.2 and 0.3 do."""
    return math.isclose(min(rewards_G), max(rewards_G), rel_tol=1e-9, abs_tol=1e-12)


def whitened(values: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Subtract the mean and divide by the standard deviation, `values[i]` standing for `counts[i]` tokens.

    All 0.0 when the values are equal up to rounding, or fewer than two tokens have one.

    Source:
        arXiv:2501.03262, over the tokens of the batch, with the sample variance.

    >>> [round(value, 4) for value in whitened([1.0, 0.0], [2, 2])]
    [0.866, -0.866]
    """
    taken = [(value, count) for value, count in zip(values, counts, strict=True) if count]
    total = sum(count for _, count in taken)
    if total < 2 or rewards_are_equal([value for value, _ in taken]):
        return [0.0] * len(values)
    mean = math.fsum(value * count for value, count in taken) / total
    variance = math.fsum(count * (value - mean) ** 2 for value, count in taken) / (total - 1)
    return [(value - mean) / math.sqrt(variance + WHITEN_EPSILON) for value in values]


def step_advantages(kind: str, groups: Iterable[Group]) -> dict[str, float]:
    """The advantage of every rollout that has one, by `rollout_id`; what is whitened is so over all of them.

    A group of fewer than two survivors is left out where its mean is the baseline; failed members never touch
    their siblings'. A group of equal rewards keeps exactly 0.0 under every kind with a group baseline.
    """
    baselined: dict[str, float] = {}
    tokens: dict[str, int] = {}
    flat: set[str] = set()
    for group in groups:
        survivors = group.survivors
        if len(survivors) < 2 and kind != "reinforce_pp":
            continue
        rewards_G = [trajectory.reward for trajectory in survivors if trajectory.reward is not None]
        values = rewards_G if kind == "reinforce_pp" else group_advantages(kind, rewards_G)
        for trajectory, value in zip(survivors, values, strict=True):
            baselined[trajectory.rollout_id] = value
            tokens[trajectory.rollout_id] = trajectory.num_sampled_tokens
            if kind != "reinforce_pp" and rewards_are_equal(rewards_G):
                flat.add(trajectory.rollout_id)
    return whitened_rollouts(kind, baselined, tokens, flat)


def whitened_rollouts(
    kind: str, baselined: dict[str, float], tokens: dict[str, int], flat: set[str]
) -> dict[str, float]:
    """Whiten over the batch where the kind does; rollouts of a `flat` group stay at exactly 0.0."""
    if kind not in ("reinforce_pp", "reinforce_pp_baseline"):
        return baselined
    values = whitened(list(baselined.values()), [tokens[key] for key in baselined])
    return {key: 0.0 if key in flat else value for key, value in zip(baselined, values, strict=True)}
