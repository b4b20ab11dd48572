"""Values, old values, returns, mask -> the critic's loss: a clipped squared error.

A pure function of tensors in any float dtype. `critic` calls it once a micro-batch; with the tokens of
the whole update handed in, losses and metrics of its micro-batches add up to those of the whole. Positions
outside the mask never count, whatever they hold.
"""

from __future__ import annotations

import torch
from torch import Tensor


def value_loss(
    *,
    values_BT: Tensor,
    old_values_BT: Tensor,
    returns_BT: Tensor,
    mask_BT: Tensor,
    clip: float | None,
    num_tokens: float | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """Half the mean squared distance to the returns; the larger of it and that of a value kept near the old
    one.

    The mean is over the tokens of the mask. `clip` is how far a value may move from its old one; None does
    not clip. `num_tokens` divides instead of the tokens that are here.

    Shapes:
        all (B, T). Returns are those of GAE before whitening.
    Returns:
        The loss, 0 with a gradient where there is no token, and `critic/vf_clipfrac`, the share of tokens on
        which the clipped error is the larger one, and `critic/vpred_mean`; NaN over no tokens.
    Raises:
        ValueError: `clip` is not above 0.
    Source:
        The value clipping of PPO's public implementations (arXiv:2005.12729, section 2), with the factor of
        one half.

    >>> values, old, returns = torch.tensor([[1.0]]), torch.tensor([[0.0]]), torch.tensor([[2.0]])
    >>> mask = torch.ones(1, 1)
    >>> loss, _ = value_loss(values_BT=values, old_values_BT=old, returns_BT=returns, mask_BT=mask, clip=0.5)
    >>> float(loss)
    1.125
    """
    if clip is not None and clip <= 0:
        raise ValueError(f"clip must be above 0, or None for no clipping; found {clip!r}")
    mask_BT = mask_BT.bool()
    # `where` and not a product: a NaN outside the mask must reach neither the value nor the gradient.
    values_BT, old_values_BT, returns_BT = (
        torch.where(mask_BT, given, 0.0) for given in (values_BT, old_values_BT, returns_BT)
    )
    plain_BT = (values_BT - returns_BT).square()
    loss_BT, clipped_BT = plain_BT, torch.zeros_like(mask_BT)
    if clip is not None:
        near_BT = torch.clamp(values_BT, old_values_BT - clip, old_values_BT + clip)
        near_error_BT = (near_BT - returns_BT).square()
        loss_BT = torch.maximum(plain_BT, near_error_BT)
        clipped_BT = near_error_BT > plain_BT
    tokens = float(mask_BT.sum()) if num_tokens is None else num_tokens
    return 0.5 * loss_BT.sum() / max(tokens, 1.0), {
        "critic/vf_clipfrac": _share(clipped_BT, tokens),
        "critic/vpred_mean": _share(values_BT.detach(), tokens),
    }


def _share(values_BT: Tensor, tokens: float) -> float:
    return float(values_BT.sum()) / tokens if tokens else float("nan")
