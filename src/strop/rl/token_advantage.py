"""Rewards, KL penalties -> advantages that need a look at the batch: token by token, or after a KL penalty.

Pure Python: no torch, no I/O. `rl.loop` calls it between batch and policy update, for algorithms whose
advantages differ from token to token and wherever the KL to the reference is taken from the reward. One list
holds one number a sampled token, in order; observation tokens in between are no steps and never enter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, replace

from strop.config.job import HyperParameters
from strop.rl.advantage import group_advantages, rewards_are_equal, whitened, whitened_rollouts
from strop.rl.gae import batch_sequences
from strop.schema.batch import Batch, MiniBatch, Pack, Score, Sequence

_MAX_EXPONENT = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Penalised:
    """A batch that brings its reference logprobs, the penalty of each sampled token of each of its sequences
    in order, and what that did to the rewards, under metric names."""

    batch: Batch
    penalties: list[list[float]]
    metrics: dict[str, float]


def penalise(batch: Batch, scores: ListLike[Score], hyper: HyperParameters) -> Penalised:
    """Weigh the KL to the reference at each token.

    Shapes:
        scores: one a sequence, in the order of the packs.
    Source:
        arXiv:2501.03262: reward at the end, minus beta times KL at each token. k1 is unbiased there and has
        the full gradient of the sequence's KL, arXiv:2506.09477.
    """
    penalties = [
        [
            hyper.kl_reward_coef * kl_value(hyper.kl_reward_type, old, reference)
            for old, reference in zip(score.old_logprobs, score.reference_logprobs, strict=True)
        ]
        for score in scores
    ]
    known = iter(scores)
    return Penalised(
        batch=_with_sequences(
            batch, lambda one: replace(one, reference_logprobs=next(known).reference_logprobs)
        ),
        penalties=penalties,
        metrics=_penalty_metrics(batch, hyper, penalties),
    )


def shape_advantages(
    batch: Batch, hyper: HyperParameters, penalties: ListLike[ListLike[float]] | None
) -> Batch:
    """The advantages of an algorithm without a critic, by token where it has them so.

    Token penalties count at their tokens for REINFORCE++; group methods take the sum of a rollout's penalties
    from its reward before the baseline of its group, which is that of the rollouts in the batch.
    """
    if penalties is None:
        penalties = [[0.0] * sequence.num_loss_tokens for sequence in batch_sequences(batch)]
    made = _token_returns if hyper.method.by_token else _group_methods
    final = iter(made(batch, hyper, penalties))
    return _with_sequences(batch, lambda _: next(final))


def shaped_metrics(batch: Batch) -> dict[str, float]:
    """Advantages and returns over all sampled tokens of a batch, so that long answers weigh more, under their
    registry names. Returns equal advantages where a rollout is rewarded once, at its end."""
    advantages: list[float] = []
    returns: list[float] = []
    for one in batch_sequences(batch):
        values = one.token_advantages or (one.advantage,) * one.num_loss_tokens
        advantages += values
        returns += one.returns or values
    return {**_spread("critic/advantages", advantages), **_spread("critic/returns", returns)}


def kl_value(kind: str, policy_logprob: float, reference_logprob: float) -> float:
    """The value of `strop.learners.losses.policy.kl` at one token; one that is not finite counts 0.

    >>> kl_value("k1", -1.0, -1.5), kl_value("k2", -1.0, -1.5), kl_value("abs", -1.5, -1.0)
    (0.5, 0.125, 0.5)
    """
    delta = policy_logprob - reference_logprob
    if not math.isfinite(delta):
        return 0.0
    match kind:
        case "k1":
            return delta
        case "k2":
            return 0.5 * delta * delta
        case "abs":
            return abs(delta)
        case _:  # k3+ has the value of k3
            return math.exp(max(-_MAX_EXPONENT, min(_MAX_EXPONENT, -delta))) - 1 + delta


def discounted_returns(rewards_T: ListLike[float], mask_T: ListLike[bool], *, gamma: float) -> list[float]:
    """G_t = r_t + gamma G_(next action token); 0.0 outside the mask.

    Tokens outside the mask are no steps: whatever reward stands there, and however many there are, the
    returns at action tokens are the same.

    >>> discounted_returns([0.0, 9.0, 1.0], [True, False, True], gamma=0.5)
    [0.5, 0.0, 1.0]
    """
    returns_T = [0.0] * len(rewards_T)
    following = 0.0
    for at in range(len(rewards_T) - 1, -1, -1):
        if mask_T[at]:
            following = rewards_T[at] + gamma * following
            returns_T[at] = following
    return returns_T


def token_rewards(reward: float, penalties_T: ListLike[float]) -> list[float]:
    """The rollout's reward at its last action token, minus the penalty at each."""
    rewards_T = [-penalty for penalty in penalties_T]
    if rewards_T:
        rewards_T[-1] += reward
    return rewards_T


def whitened_tokens(rows: ListLike[ListLike[float]]) -> list[list[float]]:
    """Whiten over all tokens of all rows."""
    flat = whitened([value for row in rows for value in row], [1] * sum(len(row) for row in rows))
    values = iter(flat)
    return [[next(values) for _ in row] for row in rows]


def _with_sequences(batch: Batch, change: Callable[[Sequence], Sequence]) -> Batch:
    """The batch with every sequence changed, in the order of the packs."""

    def packed(pack: Pack) -> Pack:
        return replace(pack, sequences=tuple(change(sequence) for sequence in pack.sequences))

    def cut(mini: MiniBatch) -> MiniBatch:
        return replace(mini, packs=tuple(packed(pack) for pack in mini.packs))

    return replace(batch, mini_batches=tuple(cut(mini) for mini in batch.mini_batches))


def _token_returns(
    batch: Batch, hyper: HyperParameters, penalties: ListLike[ListLike[float]]
) -> list[Sequence]:
    """REINFORCE++: whitened returns of every token. Each sequence of a rollout ends with the whole reward."""
    sequences = batch_sequences(batch)
    returns = [
        discounted_returns(token_rewards(one.reward, taken), [True] * len(taken), gamma=hyper.gamma)
        for one, taken in zip(sequences, penalties, strict=True)
    ]
    return [
        replace(one, returns=tuple(gained), token_advantages=tuple(values))
        for one, gained, values in zip(sequences, returns, whitened_tokens(returns), strict=True)
    ]


def _group_methods(
    batch: Batch, hyper: HyperParameters, penalties: ListLike[ListLike[float]]
) -> list[Sequence]:
    """The kind's own advantages, of rewards from which each rollout's penalties were taken."""
    taken = iter(penalties)
    kind = hyper.method.advantage
    baselined: dict[str, float] = {}
    tokens: dict[str, int] = {}
    flat: set[str] = set()
    for pack in (pack for mini in batch.mini_batches for pack in mini.packs):
        rewards: dict[str, float] = {}
        for sequence in pack.sequences:
            key = sequence.rollout_id
            rewards[key] = rewards.get(key, sequence.reward) - math.fsum(next(taken))
            tokens[key] = tokens.get(key, 0) + sequence.num_loss_tokens
        rewards_G = list(rewards.values())
        values = group_advantages(kind, rewards_G) if len(rewards_G) > 1 else [0.0]
        baselined |= dict(zip(rewards, values, strict=True))
        if rewards_are_equal(rewards_G):
            flat |= rewards.keys()
    advantages = whitened_rollouts(kind, baselined, tokens, flat)
    return [replace(one, advantage=advantages[one.rollout_id]) for one in batch_sequences(batch)]


def _penalty_metrics(
    batch: Batch, hyper: HyperParameters, penalties: ListLike[ListLike[float]]
) -> dict[str, float]:
    """Rewards as they were learned from, over rollouts, and the mean KL that was taken from them."""
    rewards: dict[str, float] = {}
    means: list[float] = []
    for sequence, taken in zip(batch_sequences(batch), penalties, strict=True):
        key = sequence.rollout_id
        rewards[key] = rewards.get(key, sequence.reward) - math.fsum(taken)
        if taken:
            means.append(math.fsum(taken) / len(taken) / hyper.kl_reward_coef)
    return {**_spread("critic/rewards", rewards.values()), "actor/reward_kl_penalty": _mean(means)}


def _spread(name: str, values: Collection[float]) -> dict[str, float]:
    return {
        f"{name}/mean": _mean(values),
        f"{name}/max": max(values, default=math.nan),
        f"{name}/min": min(values, default=math.nan),
    }


def _mean(values: Collection[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
