"""The clipped surrogate over token ratios: ppo, grpo, dr_grpo, dapo, rloo, reinforce_pp."""

from __future__ import annotations

import torch

from strop.learners.losses.surrogates.inputs import Inputs, TokenLoss, clipped_surrogate, token_ratio


def ppo(inputs: Inputs) -> TokenLoss:
    """max(-r A, -clip(r, 1 - low, 1 + high) A); with dual clip, for A < 0, no more than -c A.

    Source:
        PPO, arXiv:1707.06347; dual clip, arXiv:1912.09729; unequal bounds, DAPO, arXiv:2503.14476.
    """
    found = clipped_surrogate(token_ratio(inputs.log_ratio_BT), inputs)
    if inputs.dual_clip is None:
        return found
    cap_BT = -inputs.dual_clip * inputs.advantages_BT
    negative_BT = inputs.advantages_BT < 0
    capped_BT = torch.where(negative_BT, torch.minimum(found.loss_BT, cap_BT), found.loss_BT)
    return TokenLoss(capped_BT, found.clipped_BT, negative_BT & (found.loss_BT > cap_BT))
