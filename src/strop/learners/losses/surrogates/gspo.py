"""The clipped surrogate over sequence ratios: gspo."""

from __future__ import annotations

import torch

from strop.learners.losses.surrogates.inputs import MAX_EXPONENT, Inputs, TokenLoss, clipped_surrogate


def gspo(inputs: Inputs) -> TokenLoss:
    """max(-s A, -clip(s, 1 - low, 1 + high) A) with s = exp(mean over the sequence of the log ratio).

    In its token form: the value of s at each token, its gradient through that token alone, so that advantages
    may differ by token.

    Source:
        arXiv:2507.18071. Ours: log s is clamped to +-20.
    """
    log_ratio_BT = inputs.log_ratio_BT
    mean_B1 = log_ratio_BT.sum(-1, keepdim=True) / inputs.mask_BT.sum(-1, keepdim=True).clamp(min=1)
    token_form_BT = log_ratio_BT - log_ratio_BT.detach() + mean_B1.detach()
    return clipped_surrogate(torch.exp(token_form_BT.clamp(-MAX_EXPONENT, MAX_EXPONENT)), inputs)
