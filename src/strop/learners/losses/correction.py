"""Old and behaviour logprobs -> weights that correct what sampler and trainer disagree on.

Sampler and trainer compute the same token differently (kernels, precision, batch shapes, expert routing).
With x = old - behaviour logprob, e^x is the importance ratio of a token. All results are without gradient;
positions outside the mask never count.
"""

from __future__ import annotations

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


def _delta(old_logprobs_BT: Tensor, behaviour_logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """x in the mask, 0 outside it and where it is not finite."""
    delta_BT = (old_logprobs_BT - behaviour_logprobs_BT).detach()
    return torch.where(mask_BT.bool() & torch.isfinite(delta_BT), delta_BT, 0.0)
