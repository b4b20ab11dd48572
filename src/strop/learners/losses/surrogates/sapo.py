"""A smooth gate instead of a clip: sapo."""

from __future__ import annotations

import torch

from strop.learners.losses.surrogates.inputs import Inputs, TokenLoss, token_ratio


def sapo(inputs: Inputs) -> TokenLoss:
    """-(4 / tau) sigmoid(tau (r - 1)) A, with tau_pos where A > 0 and tau_neg elsewhere.

    The gate's slope at r = 1 is that of the ratio itself; it falls off smoothly on both sides, faster for
    negative advantages. Nothing counts as clipped.

    Source:
        arXiv:2511.20347.
    """
    advantages_BT = inputs.advantages_BT
    # Tensors, because a condition between two plain numbers is rounded to float32.
    tau_pos, tau_neg = advantages_BT.new_tensor((inputs.tau_pos, inputs.tau_neg))
    tau_BT = torch.where(advantages_BT > 0, tau_pos, tau_neg)
    gate_BT = torch.sigmoid(tau_BT * (token_ratio(inputs.log_ratio_BT) - 1)) * (4 / tau_BT)
    nowhere_BT = torch.zeros_like(inputs.mask_BT)
    return TokenLoss(-gate_BT * advantages_BT, nowhere_BT, nowhere_BT)
