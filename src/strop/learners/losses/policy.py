"""Logprobs, advantages, mask -> one scalar to minimise. The stable face of the policy losses.

Pure functions of tensors in any float dtype. `objective` calls them once a micro-batch; with the
global denominators handed in, losses and metrics of the micro-batches of an update add up to those of the
whole. Positions outside the mask never count, whatever they hold. The losses themselves stand in
`learners.losses.surrogates`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from strop.algorithms import Aggregation
from strop.learners.losses.aggregation import aggregate
from strop.learners.losses.dpo import dpo_loss
from strop.learners.losses.kl import kl
from strop.learners.losses.surrogates import Inputs, surrogate
from strop.learners.losses.value import value_loss

__all__ = ["Aggregation", "aggregate", "dpo_loss", "kl", "policy_loss", "value_loss"]


def policy_loss(
    kind: str,
    *,
    policy_logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_BT: Tensor,
    mask_BT: Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    aggregation: Aggregation = "token-mean",
    max_length: int | None = None,
    tau_pos: float = 1.0,
    tau_neg: float = 1.05,
    token_weights_BT: Tensor | None = None,
    weights_B: Tensor | None = None,
    num_tokens: float | None = None,
    num_rows: float | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of `kind` and its metrics.

    `ppo` is the clipped surrogate of ppo, grpo, dr_grpo, dapo, rloo and reinforce_pp; `gspo` that of sequence
    ratios; `cispo` clips weights; `sapo` gates smoothly and reads no clip range; `module:function` is a
    plugin's.

    Shapes:
        policy_logprobs_BT, old_logprobs_BT, mask_BT: (B, T). advantages_BT: (B, T) or (B, 1).
        token_weights_BT: (B, T) factors without gradient, such as importance weights. Default 1.
        weights_B: (B,) what each row counts in a mean over rows. Default 1.
    Units:
        clip_low, clip_high: distances of the ratio from 1.
        dual_clip: c > 1, bounds the loss of negative advantages; `ppo` only.
        num_tokens, num_rows: denominators over the whole update, where these rows are only a part of it.
    Returns:
        The scalar loss, and `actor/pg_clipfrac`, `actor/pg_clipfrac_lower`, `actor/ppo_kl` as token means
        (NaN where there is no token at all), and `actor/nan_tokens`: tokens left out because a number of
        theirs is not finite; they leave denominators that are not given, too.
    Raises:
        ValueError: an unknown kind or aggregation, or a setting that the chosen ones would ignore.
    """
    if dual_clip is not None and (kind in ("gspo", "cispo", "sapo") or dual_clip <= 1):
        raise ValueError(
            f"dual_clip must be above 1 and belongs to 'ppo' only, found {dual_clip} for {kind!r}"
        )
    asked_BT = mask_BT.bool()
    advantages_BT = advantages_BT.expand(asked_BT.shape)
    log_ratio_BT = policy_logprobs_BT - old_logprobs_BT
    mask_BT = asked_BT & torch.isfinite(log_ratio_BT.detach()) & torch.isfinite(advantages_BT)
    # `where` and not a product: a NaN outside the mask must reach neither the value nor the gradient.
    log_ratio_BT = torch.where(mask_BT, log_ratio_BT, 0.0)
    found = surrogate(kind)(
        Inputs(
            policy_logprobs_BT=torch.where(mask_BT, policy_logprobs_BT, 0.0),
            log_ratio_BT=log_ratio_BT,
            advantages_BT=torch.where(mask_BT, advantages_BT, 0.0),
            mask_BT=mask_BT,
            clip_low=clip_low,
            clip_high=clip_high,
            dual_clip=dual_clip,
            tau_pos=tau_pos,
            tau_neg=tau_neg,
        )
    )
    loss_BT = found.loss_BT
    if token_weights_BT is not None:
        loss_BT = loss_BT * torch.where(mask_BT, token_weights_BT.detach(), 0.0)
    loss = aggregate(
        loss_BT,
        mask_BT,
        aggregation,
        max_length=max_length,
        weights_B=weights_B,
        num_tokens=num_tokens,
        num_rows=num_rows,
    )
    tokens = float(mask_BT.sum()) if num_tokens is None else num_tokens
    return loss, {
        "actor/pg_clipfrac": _share(found.clipped_BT & mask_BT, tokens),
        "actor/pg_clipfrac_lower": _share(found.clipped_lower_BT & mask_BT, tokens),
        "actor/ppo_kl": _share(-log_ratio_BT.detach(), tokens),
        "actor/nan_tokens": float((asked_BT & ~mask_BT).sum()),
    }


def _share(values_BT: Tensor, tokens: float) -> float:
    return float(values_BT.sum()) / tokens if tokens else float("nan")
