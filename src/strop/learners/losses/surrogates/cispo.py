"""Clipped weights, whole gradients: cispo."""

from __future__ import annotations

import torch

from strop.learners.losses.surrogates.inputs import Inputs, TokenLoss, token_ratio


def cispo(inputs: Inputs) -> TokenLoss:
    """-sg[clip(r, 1 - low, 1 + high)] A logprob: every token keeps a gradient, only its weight is bounded.

    Tokens count as clipped whenever their ratio lies outside the bounds, on either side.

    Source:
        arXiv:2506.13585; one-sided bounds as in ScaleRL, arXiv:2510.13786.
    """
    ratio_BT = token_ratio(inputs.log_ratio_BT).detach()
    weight_BT = ratio_BT.clamp(1 - inputs.clip_low, 1 + inputs.clip_high)
    loss_BT = -weight_BT * inputs.advantages_BT * inputs.policy_logprobs_BT
    return TokenLoss(loss_BT, weight_BT != ratio_BT, torch.zeros_like(inputs.mask_BT))
