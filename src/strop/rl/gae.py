"""Rewards + the critic's values -> an advantage and a return for each sampled token: PPO's advantage stage.

Pure Python: no torch, no I/O. `rl.loop` calls `with_gae` between batch and update, when the values of
the whole batch are known. A state is the context of a sampled token; what tools and templates wrote between
two of them is no step of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as ListLike
from dataclasses import replace
from itertools import islice

from strop.errors import TrainingError
from strop.locales import msg
from strop.schema.batch import Batch, MiniBatch, Pack, Sequence
from strop.schema.function import MAX_REWARD

LARGEST = 1e3 * MAX_REWARD
"""Beyond it nothing is made from a reward. Rewards enter within `MAX_REWARD`; penalties come on top."""

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
        advantages_T and returns_T, 0.0 outside the mask. Neither is whitened; a return is advantage + value.
    Raises:
        ValueError: lengths that differ; gamma or lam outside [0, 1]; a sampled token's reward that is not
            finite or beyond `LARGEST`.
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
    for at in range(len(mask_T)):
        if mask_T[at] and not abs(rewards_T[at]) <= LARGEST:
            raise ValueError(f"rewards must be within {LARGEST:g} of 0, found {rewards_T[at]:g} at {at}")
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


def with_gae(
    batch: Batch,
    values: ListLike[ListLike[float]],
    *,
    gamma: float,
    lam: float,
    token_rewards: ListLike[ListLike[float]] | None = None,
) -> Batch:
    """The batch with an advantage, a return and the old value at each sampled token.

    A sequence is one episode: its rollout's reward falls to its last sampled token. Advantages are whitened
    over the sampled tokens of the whole batch, returns are not.

    Shapes:
        values: one list a sequence, in the batch's order, of its sampled tokens. token_rewards: likewise,
        what each token is rewarded with beside the rollout's reward, such as a KL penalty.
    Raises:
        ValueError: more or fewer of them than the batch has sequences or tokens.
        TrainingError: a value that is not finite; one would make every advantage so.
    """
    sequences = batch_sequences(batch)
    if not all(math.isfinite(value) for row in values for value in row):
        raise TrainingError(
            msg("the critic's values are not finite"),
            fix=msg("lower critic_learning_rate, and go on from an earlier checkpoint"),
        )
    none = [[0.0] * sequence.num_loss_tokens for sequence in sequences]
    given = (none if token_rewards is None else token_rewards, values)
    for name, rows in zip(("token_rewards", "values"), given, strict=True):
        if [len(row) for row in rows] != [sequence.num_loss_tokens for sequence in sequences]:
            raise ValueError(f"{name} must hold one number a sampled token of each sequence of the batch")
    estimated = [
        _estimate(sequence, rewards_T, values_T, gamma=gamma, lam=lam)
        for sequence, rewards_T, values_T in zip(sequences, *given, strict=True)
    ]
    whitened = iter(whiten([value for sequence in estimated for value in sequence.token_advantages]))
    done = iter(
        [replace(one, token_advantages=tuple(islice(whitened, one.num_loss_tokens))) for one in estimated]
    )

    def packed(pack: Pack) -> Pack:
        return replace(pack, sequences=tuple(islice(done, len(pack.sequences))))

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


def gae_metrics(batch: Batch) -> dict[str, float]:
    """What `with_gae` gave and what it was made from, over the sampled tokens of the batch, under the names
    of the metric registry. NaN where there is no token, or for a variance fewer than two."""
    sequences = batch_sequences(batch)
    advantages = [value for sequence in sequences for value in sequence.token_advantages]
    returns = [value for sequence in sequences for value in sequence.returns]
    values = [value for sequence in sequences for value in sequence.old_values]
    explained = math.nan
    if len(returns) >= 2:
        missed = _variance([target - value for target, value in zip(returns, values, strict=True)])
        explained = 1.0 - missed / (_variance(returns) + _RETURNS_EPSILON)
    return {
        **_spread("critic/advantages", advantages),
        **_spread("critic/returns", returns),
        **_spread("critic/values", values),
        "critic/vf_explained_var": explained,
    }


def batch_sequences(batch: Batch) -> list[Sequence]:
    """Every sequence, in the batch's order."""
    return [sequence for mini in batch.mini_batches for pack in mini.packs for sequence in pack.sequences]


def _estimate(
    sequence: Sequence, rewards_T: ListLike[float], values_T: ListLike[float], *, gamma: float, lam: float
) -> Sequence:
    if not len(values_T):
        return sequence
    rewards_T = [*rewards_T[:-1], rewards_T[-1] + sequence.reward]
    sampled_T = [True] * len(values_T)
    advantages_T, returns_T = gae(rewards_T, values_T, sampled_T, gamma=gamma, lam=lam)
    return replace(
        sequence,
        token_advantages=tuple(advantages_T),
        returns=tuple(returns_T),
        old_values=tuple(values_T),
    )


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
