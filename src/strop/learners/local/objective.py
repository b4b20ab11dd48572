"""Logprobs of some trees -> their part of the loss that is minimised, and its metrics.

loss = policy loss + kl_loss_coef * KL to the reference - entropy_coeff * entropy, all three with the
algorithm's aggregation and the denominators of the whole update: the parts of the trees add up to the
whole.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from strop.config.job import HyperParameters
from strop.learners.local.packed_trees import PackedTrees
from strop.learners.losses.correction import importance_weights
from strop.learners.losses.policy import aggregate, kl, policy_loss
from strop.schema.batch import LossNormalizer


def objective(
    hyper: HyperParameters,
    trees: PackedTrees,
    normalizer: LossNormalizer,
    *,
    policy_ST: Tensor,
    entropies_ST: Tensor,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of some trees with its gradient, and metrics that add up over the trees of an update."""
    aggregation = hyper.aggregation
    by_rollout = aggregation == "seq-mean-token-mean"
    whole: dict[str, Any] = {
        "max_length": hyper.max_length if aggregation == "seq-mean-token-sum-norm" else None,
        # In a sum over tokens each counts once, whatever row of its rollout it stands in.
        "weights_B": trees.weights_S if by_rollout else None,
        "num_tokens": normalizer.num_tokens,
        "num_rows": normalizer.num_rollouts,
    }
    given_ST, reference_ST = trees.old_logprobs_ST, trees.reference_logprobs_ST
    old_ST = policy_ST.detach() if given_ST is None else given_ST.to(policy_ST)
    advantages_ST, told = trees.advantages_ST, {}
    if trees.teacher_logprobs_ST is not None:
        advantages_ST, told = distilled(trees, old_ST, num_tokens=normalizer.num_tokens)
    low, high = hyper.clip_range
    token_weights_ST, metrics = _importance(hyper, trees, normalizer, old_ST)
    loss, found = policy_loss(
        hyper.method.policy_loss,
        policy_logprobs_BT=policy_ST,
        old_logprobs_BT=old_ST,
        advantages_BT=advantages_ST,
        mask_BT=trees.mask_ST,
        clip_low=low,
        clip_high=high,
        dual_clip=hyper.dual_clip_bound,
        tau_pos=hyper.tau_pos,
        tau_neg=hyper.tau_neg,
        token_weights_BT=token_weights_ST,
        aggregation=aggregation,
        **whole,
    )
    metrics |= {**found, **told, "actor/pg_loss": loss.item(), "tokens": float(trees.num_loss_tokens)}
    mask_ST = trees.mask_ST & torch.isfinite(policy_ST.detach())
    if hyper.entropy_coeff > 0:
        entropy = aggregate(entropies_ST, mask_ST, aggregation, **whole)
        metrics["actor/entropy_loss"] = entropy.item()
        loss = loss - hyper.entropy_coeff * entropy
    if reference_ST is not None:
        reference_ST = reference_ST.to(policy_ST)
        metrics |= _drift(trees.mask_ST, policy_ST.detach(), reference_ST)
    if hyper.kl_loss_coef > 0 and reference_ST is not None:
        kl_loss = aggregate(kl(hyper.kl_loss_type, policy_ST, reference_ST), mask_ST, aggregation, **whole)
        metrics["actor/kl_loss"] = kl_loss.item()
        loss = loss + hyper.kl_loss_coef * kl_loss
    return loss, {**metrics, "actor/loss": loss.item()}


def distilled(trees: PackedTrees, old_ST: Tensor, *, num_tokens: float) -> tuple[Tensor, dict[str, float]]:
    """Advantages `teacher - old logprob` at each token, 0 where the teacher knows none, and their metrics.

    Both logprobs are at the temperature of the sampling.

    Shapes:
        old_ST: the student's at the step's start.
    Units:
        num_tokens are those of the whole update: its trees' metrics add up.
    Source:
        On-policy distillation by policy gradient, discount 0: arXiv:2306.13649, and
        https://thinkingmachines.ai/blog/on-policy-distillation/.
    """
    assert trees.teacher_logprobs_ST is not None
    teacher_ST, mask_ST = trees.teacher_logprobs_ST.to(old_ST), trees.mask_ST
    known_ST = teacher_ST.isfinite() & mask_ST & old_ST.isfinite()
    advantages_ST = torch.where(known_ST, teacher_ST - old_ST, 0.0)
    whole = max(num_tokens, 1)
    return advantages_ST, {
        "actor/distillation/loss": -float(advantages_ST.sum()) / whole,
        "trace/distillation/valid_token_rate": float(known_ST.sum()) / whole,
        "trace/distillation/missing_token_rate": float((mask_ST & ~known_ST).sum()) / whole,
    }


def _drift(mask_ST: Tensor, policy_ST: Tensor, reference_ST: Tensor) -> dict[str, float]:
    """Sums of how far the tokens have come from the reference, over those that bring one."""
    mask_ST = mask_ST & torch.isfinite(policy_ST) & torch.isfinite(reference_ST)
    if not mask_ST.any():
        return {}
    sums = {
        f"actor/reference_kl_{kind}": float(kl(kind, policy_ST, reference_ST)[mask_ST].sum())
        for kind in ("k1", "k3")
    }
    return {"drift_tokens": float(mask_ST.sum()), **sums}


def _importance(
    hyper: HyperParameters, trees: PackedTrees, normalizer: LossNormalizer, old_ST: Tensor
) -> tuple[Tensor | None, dict[str, float]]:
    """Weights of the tokens, if any, and the share of the update's tokens whose weight was cut."""
    if hyper.rollout_is == "none":
        return None, {"mismatch/truncated_ratio": 0.0}
    weights_ST, cut_ST = importance_weights(
        hyper.rollout_is,
        old_ST,
        trees.behaviour_logprobs_ST,
        trees.mask_ST,
        threshold=hyper.is_threshold,
    )
    return weights_ST, {"mismatch/truncated_ratio": float(cut_ST.sum()) / max(normalizer.num_tokens, 1)}
