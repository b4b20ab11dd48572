"""Old and behaviour logprobs -> how far engine and trainer disagree, weights that correct it, tokens to drop.

Sampler and trainer compute the same token differently (kernels, precision, batch shapes, expert routing).
With x = old - behaviour logprob, e^x is the importance ratio of a token. All results are without gradient;
positions outside the mask never count.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from strop.learners.losses.surrogates.inputs import MAX_EXPONENT


def importance_weights(
    kind: str, old_logprobs_BT: Tensor, behaviour_logprobs_BT: Tensor, mask_BT: Tensor, *, threshold: float
) -> tuple[Tensor, Tensor]:
    """Truncated importance sampling: (B, T) weights min(ratio, threshold), and where they were cut.

    `token` weighs each token by its own ratio; `sequence` every token of a row by the product of the row's.

    Raises:
        ValueError: an unknown kind, or a threshold below 1, which would shrink tokens without any mismatch.
    Source:
        https://fengyao.notion.site/off-policy-rl. Ours: exponents are clamped to +-20.
    """
    if threshold < 1:
        raise ValueError(f"the threshold of importance weights must be at least 1, found {threshold}")
    delta_BT = _delta(old_logprobs_BT, behaviour_logprobs_BT, mask_BT)
    match kind:
        case "token":
            exponent_BT = delta_BT
        case "sequence":
            exponent_BT = delta_BT.sum(-1, keepdim=True).expand(delta_BT.shape)
        case _:
            raise ValueError(f"unknown importance weights {kind!r}; known: token, sequence")
    ratio_BT = exponent_BT.clamp(-MAX_EXPONENT, MAX_EXPONENT).exp()
    mask_BT = mask_BT.bool()
    return torch.where(mask_BT, ratio_BT.clamp(max=threshold), 1.0), (ratio_BT > threshold) & mask_BT


def inside_band(
    kind: str,
    old_logprobs_BT: Tensor,
    behaviour_logprobs_BT: Tensor,
    mask_BT: Tensor,
    *,
    low: float,
    high: float,
) -> Tensor:
    """Rejection: the part of the mask whose ratios lie in [low, high].

    `token` looks at each token's ratio (IcePop); `geometric` keeps or drops whole rows by the geometric mean
    of their ratios. What is dropped must leave numerator and denominator of the loss.

    Raises:
        ValueError: an unknown kind, or a band without 1, which would drop tokens without any mismatch.
    Source:
        IcePop, arXiv:2510.18855; geometric: https://richardli.xyz/rl-collapse.
    """
    if not 0 < low <= 1 <= high:
        raise ValueError(f"the band must contain the ratio 1, found [{low}, {high}]")
    mask_BT = mask_BT.bool()
    delta_BT = _delta(old_logprobs_BT, behaviour_logprobs_BT, mask_BT)
    match kind:
        case "token":
            measured_BT = delta_BT
        case "geometric":
            measured_BT = delta_BT.sum(-1, keepdim=True) / mask_BT.sum(-1, keepdim=True).clamp(min=1)
        case _:
            raise ValueError(f"unknown rejection {kind!r}; known: token, geometric")
    return mask_BT & (measured_BT >= math.log(low)) & (measured_BT <= math.log(high))


def mismatch(old: list[Tensor], behaviour: list[Tensor]) -> dict[str, float]:
    """How far the engine's logprobs of its own tokens are from the learner's, under their registry names.

    The effective sample size is (sum w)² / (n sum w²) with w = e^x. A pair that is not finite is left out; of
    no pair at all every number is NaN.
    """
    delta = torch.cat(old).double() - torch.cat(behaviour).double() if old else torch.empty(0).double()
    delta = delta[delta.isfinite()]
    if not len(delta):
        names = ("logprob_diff_mean", "logprob_diff_max", "kl_k1", "kl_k3", "effective_sample_size")
        return {f"mismatch/{name}": math.nan for name in names}
    weights = delta.clamp(-MAX_EXPONENT, MAX_EXPONENT).exp()
    return {
        "mismatch/logprob_diff_mean": float(delta.abs().mean()),
        "mismatch/logprob_diff_max": float(delta.abs().max()),
        "mismatch/kl_k1": float(-delta.mean()),
        "mismatch/kl_k3": float((weights - 1 - delta).mean()),
        "mismatch/effective_sample_size": float(weights.sum() ** 2 / (len(weights) * (weights**2).sum())),
    }


def _delta(old_logprobs_BT: Tensor, behaviour_logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """x in the mask, 0 outside it and where it is not finite."""
    delta_BT = (old_logprobs_BT - behaviour_logprobs_BT).detach()
    return torch.where(mask_BT.bool() & torch.isfinite(delta_BT), delta_BT, 0.0)
