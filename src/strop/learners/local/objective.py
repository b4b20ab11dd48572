"""Logprobs of one forest -> its part of the loss that is minimised, and its metrics.

loss = policy loss + kl_loss_coef * KL to the reference - entropy_coeff * entropy, all three with the
algorithm's aggregation and the denominators of the whole update: the parts of the forests add up to the
whole.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from strop.config.job import HyperParameters
from strop.learners.local.loss_normalizer import LossNormalizer
from strop.learners.local.packed_trees import PackedTrees
from strop.learners.losses.correction import importance_weights, inside_band
from strop.learners.losses.policy import aggregate, kl, policy_loss


def kept_tokens(hyper: HyperParameters, forest: PackedTrees, old_E: Tensor | None) -> Tensor:
    """(S, T) tokens that rejection leaves in the loss: all of the mask unless `rollout_rs` is on."""
    if hyper.rollout_rs == "none" or old_E is None:
        return forest.mask_ST
    low, high = hyper.rs_band
    return inside_band(
        hyper.rollout_rs,
        old_E[forest.sequence_edges_ST],
        forest.behaviour_logprobs_ST,
        forest.mask_ST,
        low=low,
        high=high,
    )


def objective(
    hyper: HyperParameters,
    forest: PackedTrees,
    share: LossNormalizer,
    *,
    policy_ST: Tensor,
    old_ST: Tensor,
    entropies_ST: Tensor,
    reference_ST: Tensor | None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of a forest with its gradient, and metrics that add up over the forests of an update."""
    aggregation = hyper.aggregation
    by_rollout = aggregation == "seq-mean-token-mean"
    whole: dict[str, Any] = {
        "max_length": hyper.max_length if aggregation == "seq-mean-token-sum-norm" else None,
        # In a sum over tokens each counts once, whatever row of its rollout it stands in.
        "weights_B": share.weights_S if by_rollout else None,
        "num_tokens": share.num_tokens,
        "num_rows": share.num_rows,
    }
    low, high = hyper.clip_range
    token_weights_ST, metrics = _importance(hyper, forest, share, old_ST)
    loss, found = policy_loss(
        hyper.method.policy_loss,
        policy_logprobs_BT=policy_ST,
        old_logprobs_BT=old_ST,
        advantages_BT=forest.advantages_ST,
        mask_BT=share.mask_ST,
        clip_low=low,
        clip_high=high,
        dual_clip=hyper.dual_clip_bound,
        tau_pos=hyper.tau_pos,
        tau_neg=hyper.tau_neg,
        token_weights_BT=token_weights_ST,
        aggregation=aggregation,
        **whole,
    )
    metrics |= {**found, "actor/pg_loss": loss.item()}
    mask_ST = share.mask_ST & torch.isfinite(policy_ST.detach())
    if hyper.entropy_coeff > 0:
        entropy = aggregate(entropies_ST, mask_ST, aggregation, **whole)
        metrics["actor/entropy_loss"] = entropy.item()
        loss = loss - hyper.entropy_coeff * entropy
    if hyper.kl_loss_coef > 0 and reference_ST is not None:
        kl_loss = aggregate(kl(hyper.kl_loss_type, policy_ST, reference_ST), mask_ST, aggregation, **whole)
        metrics["actor/kl_loss"] = kl_loss.item()
        loss = loss + hyper.kl_loss_coef * kl_loss
    return loss, {**metrics, "actor/loss": loss.item()}


def _importance(
    hyper: HyperParameters, forest: PackedTrees, share: LossNormalizer, old_ST: Tensor
) -> tuple[Tensor | None, dict[str, float]]:
    """Weights of the tokens, if any, and the share of the update's tokens whose weight was cut."""
    if hyper.rollout_is == "none":
        return None, {"mismatch/truncated_ratio": 0.0}
    weights_ST, cut_ST = importance_weights(
        hyper.rollout_is,
        old_ST,
        forest.behaviour_logprobs_ST,
        share.mask_ST,
        threshold=hyper.is_threshold,
    )
    return weights_ST, {"mismatch/truncated_ratio": float(cut_ST.sum()) / max(share.num_tokens, 1)}
