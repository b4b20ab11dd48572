"""Old and behaviour logprobs -> how far sampler and trainer disagree, and which tokens rejection drops.

Pure Python: no torch, no I/O. Sampler and trainer compute the same token differently (kernels, precision,
batch shapes, expert routing). With x = old - behaviour logprob, e^x is the importance ratio of a token.
Weights that correct the ratio are a part of the loss: `learners.losses.correction`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Sequence as ListLike

MAX_EXPONENT = 20.0
"""Beyond it a ratio is a bug or a collapse."""


def inside_band(
    kind: str,
    old_T: ListLike[float],
    behaviour_T: ListLike[float],
    *,
    low: float,
    high: float,
) -> tuple[bool, ...]:
    """Rejection: which sampled tokens of a sequence have ratios in [low, high].

    `token` looks at each token's ratio (IcePop); `geometric` keeps or drops the whole row by the geometric
    mean of its ratios. A token whose behaviour logprob is not finite is never kept, and not part of the
    mean. What is dropped must leave numerator and denominator of the loss.

    Raises:
        ValueError: an unknown kind, or a band without 1, which would drop tokens without any mismatch.
    Source:
        IcePop, arXiv:2510.18855; geometric: https://richardli.xyz/rl-collapse.

    >>> inside_band("token", [-1.0, -1.0], [-1.0, -3.0], low=0.5, high=5.0)
    (True, False)
    """
    if not 0 < low <= 1 <= high:
        raise ValueError(f"the band must contain the ratio 1, found [{low}, {high}]")
    known_T = [math.isfinite(value) for value in behaviour_T]
    deltas_T = [_delta(old, behaviour) for old, behaviour in zip(old_T, behaviour_T, strict=True)]
    match kind:
        case "token":
            measured_T = deltas_T
        case "geometric":
            measured_T = [math.fsum(deltas_T) / max(sum(known_T), 1)] * len(deltas_T)
        case _:
            raise ValueError(f"unknown rejection {kind!r}; known: token, geometric")
    lowest, highest = math.log(low), math.log(high)
    return tuple(
        known and lowest <= measured <= highest for known, measured in zip(known_T, measured_T, strict=True)
    )


def mismatch(pairs: Iterable[tuple[float, float]]) -> dict[str, float]:
    """How far the sampler's logprobs of its own tokens are from the trainer's, under their registry names.

    `pairs` are (old, behaviour). The effective sample size is (sum w)² / (n sum w²) with w = e^x. A pair that
    is not finite is left out; of no pair at all every number is NaN.
    """
    deltas = [old - behaviour for old, behaviour in pairs]
    deltas = [delta for delta in deltas if math.isfinite(delta)]
    if not deltas:
        names = ("logprob_diff_mean", "logprob_diff_max", "kl_k1", "kl_k3", "effective_sample_size")
        return {f"mismatch/{name}": math.nan for name in names}
    count = len(deltas)
    weights = [math.exp(min(max(delta, -MAX_EXPONENT), MAX_EXPONENT)) for delta in deltas]
    differences = zip(weights, deltas, strict=True)
    return {
        "mismatch/logprob_diff_mean": math.fsum(map(abs, deltas)) / count,
        "mismatch/logprob_diff_max": max(map(abs, deltas)),
        "mismatch/kl_k1": -math.fsum(deltas) / count,
        "mismatch/kl_k3": math.fsum(weight - 1 - delta for weight, delta in differences) / count,
        "mismatch/effective_sample_size": math.fsum(weights) ** 2
        / (count * math.fsum(weight * weight for weight in weights)),
    }


def _delta(old: float, behaviour: float) -> float:
    delta = old - behaviour
    return delta if math.isfinite(delta) else 0.0
