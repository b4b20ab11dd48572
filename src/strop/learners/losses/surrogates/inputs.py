"""What a token loss is made from, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

# exp() of a log ratio beyond this is no longer a ratio but a bug or a collapse; the gradient there is 0.
MAX_EXPONENT = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything finite; 0 outside the mask.

    Shapes:
        policy_logprobs_BT, log_ratio_BT (policy minus old logprobs), advantages_BT, mask_BT (bool): (B, T).
    Units:
        clip_low, clip_high: distances of the ratio from 1. dual_clip: multiples of the advantage, None for
        none. tau_pos, tau_neg: steepness of SAPO's gate.
    """

    policy_logprobs_BT: Tensor
    log_ratio_BT: Tensor
    advantages_BT: Tensor
    mask_BT: Tensor
    clip_low: float
    clip_high: float
    dual_clip: float | None = None
    tau_pos: float = 1.0
    tau_neg: float = 1.05


class TokenLoss(NamedTuple):
    """(B, T) loss of each token; where clipping changed it; where the bound of dual clip did."""

    loss_BT: Tensor
    clipped_BT: Tensor
    clipped_lower_BT: Tensor


def token_ratio(log_ratio_BT: Tensor) -> Tensor:
    """Probability ratios of single tokens, the exponent clamped to +-20."""
    return torch.exp(log_ratio_BT.clamp(-MAX_EXPONENT, MAX_EXPONENT))


def clipped_surrogate(ratio_BT: Tensor, inputs: Inputs) -> TokenLoss:
    """max(-r A, -clip(r) A), for whatever ratio; nothing of dual clip."""
    plain_BT = -inputs.advantages_BT * ratio_BT
    bounded_BT = ratio_BT.clamp(1 - inputs.clip_low, 1 + inputs.clip_high)
    clipped_BT = -inputs.advantages_BT * bounded_BT
    return TokenLoss(
        torch.maximum(plain_BT, clipped_BT), clipped_BT > plain_BT, torch.zeros_like(inputs.mask_BT)
    )
