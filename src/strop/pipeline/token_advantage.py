"""Rewards, KL penalties -> advantages that need a look at the batch: token by token, or after a KL penalty.

Pure Python: no torch, no I/O. `pipeline.loop` calls it between batch and policy update, for algorithms whose
advantages differ from token to token and wherever the KL to the reference is taken from the reward. One list
holds one number a sampled token, in order; observation tokens in between are no steps and never enter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, replace

from strop.pipeline.advantage import group_advantages, rewards_are_equal, whitened, whitened_rollouts
from strop.schema.batch import Batch, Pack, Score, Sequence
from strop.schema.config import HyperParameters

_MAX_EXPONENT = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """A batch with its final advantages, and what the KL penalty did to its rewards, under metric names."""

    batch: Batch
    metrics: dict[str, float]


def shape_advantages(batch: Batch, hyper: HyperParameters, scores: ListLike[Score] | None) -> Shaped:
    """Put the advantages of `hyper`'s algorithm into a batch.

    Shapes:
        scores: one a sequence, in the order of the packs; None where neither a penalty nor a critic needs them.
    Source:
        Token penalties: arXiv:2501.03262 (terminal reward, minus beta times KL at each token). Group methods
        take the sum of a rollout's penalties from its reward, before the group's baseline.
    """
    known = iter(scores) if scores is not None else None
    penalties: list[list[float]] = []
    for sequence in _sequences(batch):
        score = next(known) if known is not None else None
        penalties.append(kl_penalties(hyper, score, sequence.num_loss_tokens))
    metrics = _penalty_metrics(batch, hyper, penalties) if hyper.kl_reward_coef > 0 else {}
    if hyper.method.by_token:
        made = _returns(batch, hyper, penalties)
    else:
        made = _group_methods(batch, hyper, penalties)
    references = [score.reference_logprobs for score in scores] if scores is not None else [()] * len(made)
    final = iter(replace(one, reference_logprobs=two) for one, two in zip(made, references, strict=True))
    return Shaped(batch=with_sequences(batch, lambda _: next(final)), metrics=metrics)


def kl_penalties(hyper: HyperParameters, score: Score | None, num_tokens: int) -> list[float]:
    """beta times the KL estimate at each token, with the logprobs of the step's start."""
    if not hyper.kl_reward_coef or score is None:
        return [0.0] * num_tokens
    return [
        hyper.kl_reward_coef * kl_value(hyper.kl_reward_type, old, reference)
        for old, reference in zip(score.old_logprobs, score.reference_logprobs, strict=True)
    ]


def kl_value(kind: str, policy_logprob: float, reference_logprob: float) -> float:
    """The value of `strop.policy.loss.kl` at one token; one that is not finite counts 0.

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


def with_sequences(batch: Batch, change: Callable[[Sequence], Sequence]) -> Batch:
    """The batch with every sequence changed, in the order of the packs."""
    minis = tuple(
        replace(
            mini,
            packs=tuple(
                replace(pack, sequences=tuple(change(sequence) for sequence in pack.sequences))
                for pack in mini.packs
            ),
        )
        for mini in batch.mini_batches
    )
    return replace(batch, mini_batches=minis)


def _returns(
    batch: Batch, hyper: HyperParameters, penalties: ListLike[ListLike[float]]
) -> list[Sequence]:
    """REINFORCE++: whitened returns of every token. Each sequence of a rollout ends with the whole reward."""
    sequences = list(_sequences(batch))
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
    for pack in _packs(batch):
        rewards: dict[str, float] = {}
        for sequence in pack.sequences:
            key = sequence.rollout_id
            rewards[key] = rewards.get(key, sequence.reward) - math.fsum(next(taken))
            tokens[key] = tokens.get(key, 0) + sequence.num_loss_tokens
        rewards_G = list(rewards.values())
        if len(rewards_G) < 2:
            values = [0.0] * len(rewards_G)
        else:
            values = group_advantages(kind, rewards_G)
        baselined |= dict(zip(rewards, values, strict=True))
        if rewards_are_equal(rewards_G):
            flat |= rewards.keys()
    advantages = whitened_rollouts(kind, baselined, tokens, flat)
    return [replace(one, advantage=advantages[one.rollout_id]) for one in _sequences(batch)]


def _penalty_metrics(
    batch: Batch, hyper: HyperParameters, penalties: ListLike[ListLike[float]]
) -> dict[str, float]:
    """Rewards as they were learned from, over rollouts, and the mean KL that was taken from them."""
    rewards: dict[str, float] = {}
    means: list[float] = []
    for sequence, taken in zip(_sequences(batch), penalties, strict=True):
        key = sequence.rollout_id
        rewards[key] = rewards.get(key, sequence.reward) - math.fsum(taken)
        if taken:
            means.append(math.fsum(taken) / len(taken) / hyper.kl_reward_coef)
    return {**_spread("critic/rewards", rewards), "actor/reward_kl_penalty": _mean(means)}


def _spread(name: str, values: Mapping[str, float]) -> dict[str, float]:
    found = list(values.values())
    return {
        f"{name}/mean": _mean(found),
        f"{name}/max": max(found, default=math.nan),
        f"{name}/min": min(found, default=math.nan),
    }


def _mean(values: ListLike[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _packs(batch: Batch) -> Iterator[Pack]:
    return (pack for mini in batch.mini_batches for pack in mini.packs)


def _sequences(batch: Batch) -> Iterator[Sequence]:
    return (sequence for pack in _packs(batch) for sequence in pack.sequences)
