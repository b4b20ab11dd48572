"""Rewards + the critic's values -> an advantage and a return for each sampled token: PPO's advantage stage.

Pure Python: no torch, no I/O. `pipeline.loop` calls `with_gae` between batch and update, when the values of
the whole batch are known. A state is the context of a sampled token; what tools and templates wrote between
two of them is no step of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as ListLike
from dataclasses import replace

from strop.schema.batch import Batch, MiniBatch, Pack, Sequence

_VARIANCE_EPSILON = 1e-8
"""Added to the variance of the advantages when they are whitened; verl's convention."""

_RETURNS_EPSILON = 1e-5
"""Added to the variance of the returns in the explained variance; verl's convention."""


def gae(
    rewards_T: ListLike[float],
    values_T: ListLike[float],
    mask_T: ListLike[float],
    *,
    gamma: float,
    lam: float,
) -> tuple[list[float], list[float]]:
    """Generalised advantage estimation over the sampled tokens of one sequence.

    The successor of a sampled token is the next sampled token; after the last one the value is 0. Rewards and
    values elsewhere are never read.

    Shapes:
        rewards_T, values_T, mask_T: (T,), lists or arrays. `values_T[t]` is that of the context in which
        token t was sampled, `mask_T[t]` true where it was sampled.
    Returns:
        advantages_T and returns_T, 0.0 where the mask is not. Neither is whitened; return = advantage + value.
    Raises:
        ValueError: lengths that differ; gamma or lam outside [0, 1].
    Source:
        arXiv:1506.02438, section 3; ours: tokens outside the mask are skipped.

    >>> gae([0.0, 9.0, 1.0], [0.5, 9.0, 0.5], [1, 0, 1], gamma=1.0, lam=0.5)
    ([0.25, 0.0, 0.5], [0.75, 0.0, 1.0])
    """
    if not len(rewards_T) == len(values_T) == len(mask_T):
        raise ValueError(
            f"rewards, values and mask must be of one length, "
            f"found {len(rewards_T)}, {len(values_T)} and {len(mask_T)}"
        )
    for name, value in (("gamma", gamma), ("lam", lam)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must lie in [0, 1], found {value!r}")
    advantages_T, returns_T = [0.0] * len(mask_T), [0.0] * len(mask_T)
    advantage = next_value = 0.0
    for at in range(len(mask_T) - 1, -1, -1):
        if not mask_T[at]:
            continue
        value = float(values_T[at])
        delta = float(rewards_T[at]) + gamma * next_value - value
        advantage = delta + gamma * lam * advantage
        advantages_T[at], returns_T[at] = advantage, advantage + value
        next_value = value
    return advantages_T, returns_T


def with_gae(batch: Batch, values: ListLike[ListLike[float]], *, gamma: float, lam: float) -> Batch:
    """The batch with an advantage, a return and the old value at each sampled token.

    A sequence is one episode: its rollout's reward falls to its last sampled token. Advantages are whitened
    over the sampled tokens of the whole batch, returns are not.

    Shapes:
        values: one list a sequence, in the batch's order, of its sampled tokens.
    Raises:
        ValueError: values of more or fewer sequences or tokens than there are; a sequence without a reward.
    """
    sequences = _sequences(batch)
    if len(values) != len(sequences):
        raise ValueError(f"values of {len(values)} sequences for a batch of {len(sequences)}")
    estimated = [
        _estimate(sequence, row, gamma=gamma, lam=lam)
        for sequence, row in zip(sequences, values, strict=True)
    ]
    whitened = iter(whiten([value for sequence in estimated for value in _sampled(sequence, "advantages")]))
    done = iter(
        [
            replace(
                sequence,
                advantages=tuple(next(whitened) if sampled else 0.0 for sampled in sequence.loss_mask),
            )
            for sequence in estimated
        ]
    )

    def packed(pack: Pack) -> Pack:
        return replace(pack, sequences=tuple(next(done) for _ in pack.sequences))

    def cut(mini: MiniBatch) -> MiniBatch:
        return replace(mini, packs=tuple(packed(pack) for pack in mini.packs))

    return replace(batch, mini_batches=tuple(cut(mini) for mini in batch.mini_batches))


def whiten(values: ListLike[float]) -> list[float]:
    """Centre and scale to variance 1; the sample variance (n - 1) of fewer than two values is 0.

    >>> [round(value, 6) for value in whiten([1.0, 3.0])]
    [-0.707107, 0.707107]
    """
    if not values:
        return []
    mean = math.fsum(values) / len(values)
    scale = 1.0 / math.sqrt(_variance(values) + _VARIANCE_EPSILON)
    return [(value - mean) * scale for value in values]


def gae_measures(batch: Batch) -> dict[str, float]:
    """What `with_gae` gave and what it was made from, over the sampled tokens of the batch, under the names
    of the metric registry. NaN where there is no token, or for a variance fewer than two."""
    sequences = _sequences(batch)
    found = {
        name: [value for sequence in sequences for value in _sampled(sequence, name)]
        for name in ("advantages", "returns", "old_values")
    }
    returns, values = found["returns"], found["old_values"]
    explained = math.nan
    if len(returns) >= 2:
        missed = _variance([target - value for target, value in zip(returns, values, strict=True)])
        explained = 1.0 - missed / (_variance(returns) + _RETURNS_EPSILON)
    return {
        **_spread("critic/advantages", found["advantages"]),
        **_spread("critic/returns", returns),
        **_spread("critic/values", values),
        "critic/vf_explained_var": explained,
    }


def _sequences(batch: Batch) -> list[Sequence]:
    return [sequence for mini in batch.mini_batches for pack in mini.packs for sequence in pack.sequences]


def _estimate(sequence: Sequence, values: ListLike[float], *, gamma: float, lam: float) -> Sequence:
    mask_T = sequence.loss_mask
    at = [index for index, sampled in enumerate(mask_T) if sampled]
    if len(values) != len(at):
        raise ValueError(
            f"rollout {sequence.rollout_id!r}: {len(values)} values for {len(at)} sampled tokens"
        )
    if sequence.reward is None:
        raise ValueError(f"rollout {sequence.rollout_id!r}: no reward to estimate advantages from")
    values_T, rewards_T = [0.0] * len(mask_T), [0.0] * len(mask_T)
    for index, value in zip(at, values, strict=True):
        values_T[index] = value
    if at:
        rewards_T[at[-1]] = sequence.reward
    advantages_T, returns_T = gae(rewards_T, values_T, mask_T, gamma=gamma, lam=lam)
    return replace(
        sequence, advantages=tuple(advantages_T), returns=tuple(returns_T), old_values=tuple(values_T)
    )


def _sampled(sequence: Sequence, name: str) -> list[float]:
    row = getattr(sequence, name)
    return [value for value, sampled in zip(row, sequence.loss_mask, strict=True) if sampled]


def _variance(values: ListLike[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _spread(name: str, values: ListLike[float]) -> dict[str, float]:
    return {
        f"{name}/mean": math.fsum(values) / len(values) if values else math.nan,
        f"{name}/max": max(values, default=math.nan),
        f"{name}/min": min(values, default=math.nan),
    }
