"""Logprobs of preferred and rejected answers -> one scalar to minimise: the DPO family.

A pure function of tensors in any float dtype. `learners.local.rows` calls it once a micro-batch; with the
number of pairs of the whole update handed in, losses and metrics of the micro-batches add up to the whole.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F


def dpo_loss(
    kind: str = "sigmoid",
    *,
    policy_chosen_logprobs_P: Tensor,
    policy_rejected_logprobs_P: Tensor,
    reference_chosen_logprobs_P: Tensor,
    reference_rejected_logprobs_P: Tensor,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    num_pairs: float | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The mean loss of preference pairs, and their implicit rewards `beta * (policy - reference)`.

    With h = (policy - reference) of the chosen less that of the rejected answer, and e = label_smoothing:
    `sigmoid` -(1 - e) log s(beta h) - e log s(-beta h); `robust` (-(1 - e) log s(beta h) + e log s(-beta h))
    / (1 - 2 e), unbiased where a share e of the labels is flipped; `ipo` (h - 1 / (2 beta))^2.

    Shapes:
        all: (P,) one logprob an answer. Only completion tokens count.
    Units:
        sums over an answer's tokens; for `ipo` means over them, so that its target does not depend on
        length.
        num_pairs: the denominator over the whole update, where these pairs are only a part of it.
    Returns:
        The scalar loss; `dpo/loss` and `dpo/rewards/{chosen,rejected,margin,accuracy}` as means over pairs
        (NaN where there is no pair). A pair with h = 0 counts as wrong.
    Raises:
        ValueError: an unknown kind, or a setting out of range or without effect.
    Source:
        DPO, arXiv:2305.18290; label smoothing, its conservative form; robust, arXiv:2403.00409; IPO,
        arXiv:2310.12036.

    >>> import torch
    >>> zero, one = torch.zeros(1), torch.ones(1)
    >>> loss, metrics = dpo_loss(policy_chosen_logprobs_P=one, policy_rejected_logprobs_P=zero,
    ...     reference_chosen_logprobs_P=zero, reference_rejected_logprobs_P=zero, beta=1.0)
    >>> round(float(loss), 4), metrics["dpo/rewards/margin"]
    (0.3133, 1.0)
    """
    if kind not in _LOSSES:
        raise ValueError(f"unknown DPO loss {kind!r}; known: {', '.join(sorted(_LOSSES))}")
    if beta <= 0:
        raise ValueError(f"beta must be above 0, found {beta}")
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing must lie in [0, 0.5), found {label_smoothing}")
    if kind == "ipo" and label_smoothing:
        raise ValueError("label_smoothing has no effect on 'ipo'")
    chosen_P = policy_chosen_logprobs_P - reference_chosen_logprobs_P
    rejected_P = policy_rejected_logprobs_P - reference_rejected_logprobs_P
    difference_P = chosen_P - rejected_P
    pairs = float(len(difference_P)) if num_pairs is None else num_pairs
    loss = _LOSSES[kind](difference_P, beta, label_smoothing).sum() / (pairs or 1.0)

    def mean(values_P: Tensor) -> float:
        return float(values_P.detach().sum()) / pairs if pairs else float("nan")

    return loss, {
        "dpo/loss": float(loss.detach()) if pairs else float("nan"),
        "dpo/rewards/chosen": beta * mean(chosen_P),
        "dpo/rewards/rejected": beta * mean(rejected_P),
        "dpo/rewards/margin": beta * mean(difference_P),
        "dpo/rewards/accuracy": mean((difference_P > 0).to(difference_P.dtype)),
    }


def _sigmoid(difference_P: Tensor, beta: float, smoothing: float) -> Tensor:
    right_P, flipped_P = F.logsigmoid(beta * difference_P), F.logsigmoid(-beta * difference_P)
    return -(1 - smoothing) * right_P - smoothing * flipped_P


def _robust(difference_P: Tensor, beta: float, smoothing: float) -> Tensor:
    right_P, flipped_P = F.logsigmoid(beta * difference_P), F.logsigmoid(-beta * difference_P)
    return (-(1 - smoothing) * right_P + smoothing * flipped_P) / (1 - 2 * smoothing)


def _ipo(difference_P: Tensor, beta: float, smoothing: float) -> Tensor:
    return (difference_P - 1 / (2 * beta)).square()


_LOSSES: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "sigmoid": _sigmoid,
    "robust": _robust,
    "ipo": _ipo,
}
