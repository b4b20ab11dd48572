"""Logprobs, advantages, mask -> one scalar to minimise: the policy losses, their aggregations, the KL
estimators.

Pure functions of tensors in any float dtype. `policy.update` calls them once a micro-batch; with the global
denominators handed in, losses and metrics of the micro-batches of an update add up to those of the whole.
Positions outside the mask never count, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from strop.policy.dpo_loss import dpo_loss

__all__ = ["Aggregation", "aggregate", "dpo_loss", "kl", "policy_loss"]

Aggregation = Literal[
    "token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]

# exp() of a log ratio beyond this is no longer a ratio but a bug or a collapse; the gradient there is 0.
_MAX_EXPONENT = 20.0


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
    weights_B: Tensor | None = None,
    num_tokens: float | None = None,
    num_rows: float | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of `kind` (`ppo`: clipped token ratios; `gspo`: clipped sequence ratios) and its metrics.

    Shapes:
        policy_logprobs_BT, old_logprobs_BT, mask_BT: (B, T). advantages_BT: (B, T) or (B, 1).
        weights_B: (B,) what each row counts in a mean over rows; 1 / rows of that rollout. Default 1.
    Units:
        clip_low, clip_high: distances of the ratio from 1.
        dual_clip: c > 1, bounds the loss of negative advantages; `ppo` only.
        num_tokens, num_rows: denominators over the whole update, where these rows are only a part of it.
    Returns:
        The scalar loss, and `actor/pg_clipfrac`, `actor/pg_clipfrac_lower`, `actor/ppo_kl` as token means
        (NaN where there is no token at all).
    Raises:
        ValueError: an unknown kind or aggregation, or a setting that the chosen ones would ignore.
    Source:
        PPO, arXiv:1707.06347; GRPO, arXiv:2402.03300; dual clip, arXiv:1912.09729; GSPO, arXiv:2507.18071
        (its token form, so that advantages may differ by token). Ours: log ratios are clamped to +-20.
    """
    if kind not in _SURROGATES:
        raise ValueError(f"unknown policy loss {kind!r}; known: {', '.join(sorted(_SURROGATES))}")
    if dual_clip is not None and (kind != "ppo" or dual_clip <= 1):
        raise ValueError(
            f"dual_clip must be above 1 and belongs to 'ppo' only, found {dual_clip} for {kind!r}"
        )
    mask_BT = mask_BT.bool()
    # `where` and not a product: a NaN outside the mask must reach neither the value nor the gradient.
    advantages_BT = torch.where(mask_BT, advantages_BT.expand(mask_BT.shape), 0.0)
    log_ratio_BT = torch.where(mask_BT, policy_logprobs_BT - old_logprobs_BT, 0.0)
    ratio_BT = _SURROGATES[kind](log_ratio_BT, mask_BT)
    plain_BT = -advantages_BT * ratio_BT
    clipped_BT = -advantages_BT * ratio_BT.clamp(1 - clip_low, 1 + clip_high)
    loss_BT = torch.maximum(plain_BT, clipped_BT)
    lower_BT = torch.zeros_like(mask_BT)
    if dual_clip is not None:
        cap_BT = -dual_clip * advantages_BT
        negative_BT = advantages_BT < 0
        lower_BT = negative_BT & (loss_BT > cap_BT)
        loss_BT = torch.where(negative_BT, torch.minimum(loss_BT, cap_BT), loss_BT)
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
        "actor/pg_clipfrac": _share((clipped_BT > plain_BT) & mask_BT, tokens),
        "actor/pg_clipfrac_lower": _share(lower_BT & mask_BT, tokens),
        "actor/ppo_kl": _share(-log_ratio_BT.detach(), tokens),
    }


def aggregate(
    values_BT: Tensor,
    mask_BT: Tensor,
    aggregation: Aggregation,
    *,
    max_length: int | None = None,
    weights_B: Tensor | None = None,
    num_tokens: float | None = None,
    num_rows: float | None = None,
) -> Tensor:
    """One scalar from a value a token.

    A row without tokens leaves numerator and denominator; without any token the result is 0 and still has a
    gradient. `max_length` is the constant divisor of `seq-mean-token-sum-norm` (Dr. GRPO, arXiv:2503.20783).

    Raises:
        ValueError: unknown aggregation; `max_length` missing, or given where it would have no effect.

    >>> ones = torch.ones(2, 3)
    >>> mask = torch.tensor([[True, True, True], [True, False, False]])
    >>> [float(aggregate(ones, mask, kind)) for kind in ("token-mean", "token-sum", "seq-mean-token-sum")]
    [1.0, 4.0, 2.0]
    """
    if (aggregation == "seq-mean-token-sum-norm") != (max_length is not None):
        raise ValueError(
            f"max_length belongs to 'seq-mean-token-sum-norm' only; found {max_length} for {aggregation!r}"
        )
    mask_BT = mask_BT.bool()
    values_BT = torch.where(mask_BT, values_BT, 0.0)
    if aggregation == "token-sum":
        return values_BT.sum()
    if aggregation == "token-mean":
        return values_BT.sum() / max(float(mask_BT.sum()) if num_tokens is None else num_tokens, 1.0)
    lengths_B = mask_BT.sum(-1)
    weights_B = torch.ones_like(values_BT[:, 0]) if weights_B is None else weights_B.to(values_BT.dtype)
    rows = float((weights_B * (lengths_B > 0)).sum()) if num_rows is None else num_rows
    rows_B = values_BT.sum(-1) * weights_B / (rows or 1.0)
    if aggregation == "seq-mean-token-sum":
        return rows_B.sum()
    if aggregation == "seq-mean-token-mean":
        return (rows_B / lengths_B.clamp(min=1)).sum()
    if aggregation == "seq-mean-token-sum-norm" and max_length is not None:
        return (rows_B / max_length).sum()
    raise ValueError(f"unknown aggregation {aggregation!r}; known: {', '.join(Aggregation.__args__)}")


def kl(kind: str, policy_logprobs_BT: Tensor, reference_logprobs_BT: Tensor) -> Tensor:
    """Estimate KL(policy || reference) at each token the policy sampled, with d = policy - reference.

    `k1` d: unbiased; as a loss its gradient has mean zero, so it does nothing. `k2` d²/2: as a loss, its
    expected gradient is that of the KL. `k3` e^-d - 1 + d: never negative, for reports; as a loss it is the
    gradient of the opposite KL. `k3+` the value of k3 with the gradient of k2.

    Source:
        http://joschu.net/blog/kl-approx.html; gradients: arXiv:2506.09477. Ours: the exponent is clamped to
        +-20.
    """
    delta_BT = policy_logprobs_BT - reference_logprobs_BT
    if kind == "k1":
        return delta_BT
    half_square_BT = 0.5 * delta_BT.square()
    if kind == "k2":
        return half_square_BT
    if kind not in ("k3", "k3+"):
        raise ValueError(f"unknown KL estimator {kind!r}; known: k1, k2, k3, k3+")
    k3_BT = torch.exp((-delta_BT).clamp(-_MAX_EXPONENT, _MAX_EXPONENT)) - 1 + delta_BT
    if kind == "k3":
        return k3_BT
    return k3_BT.detach() + half_square_BT - half_square_BT.detach()


def _token_ratio(log_ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return torch.exp(log_ratio_BT.clamp(-_MAX_EXPONENT, _MAX_EXPONENT))


def _sequence_ratio(log_ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The sequence's ratio at each of its tokens; its gradient flows through that token alone."""
    mean_B1 = log_ratio_BT.sum(-1, keepdim=True) / mask_BT.sum(-1, keepdim=True).clamp(min=1)
    token_form_BT = log_ratio_BT - log_ratio_BT.detach() + mean_B1.detach()
    return torch.exp(token_form_BT.clamp(-_MAX_EXPONENT, _MAX_EXPONENT))


_SURROGATES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"ppo": _token_ratio, "gspo": _sequence_ratio}


def _share(values_BT: Tensor, tokens: float) -> float:
    return float(values_BT.sum()) / tokens if tokens else float("nan")
