"""Policy and reference logprobs -> an estimate of their KL at every token."""

from __future__ import annotations

import torch
from torch import Tensor

from strop.learners.losses.surrogates.inputs import MAX_EXPONENT

KINDS = ("k1", "k2", "k3", "k3+", "abs")


def kl(kind: str, policy_logprobs_BT: Tensor, reference_logprobs_BT: Tensor) -> Tensor:
    """Estimate KL(policy || reference) at each token the policy sampled, with d = policy - reference.

    | kind | value | as a loss |
    |---|---|---|
    | `k1` | d, unbiased, may be negative | its gradient has mean zero: it does nothing |
    | `k2` | d²/2 | its expected gradient is that of the KL |
    | `k3` | e^-d - 1 + d, never negative | the gradient of the opposite KL |
    | `k3+` | that of k3 | the gradient of k2: value and gradient are both right |
    | `abs` | abs(d) | for looking at, not for training |

    Raises:
        ValueError: an unknown kind.
    Source:
        http://joschu.net/blog/kl-approx.html; gradients: arXiv:2506.09477. Ours: the exponent is clamped to
        +-20.
    """
    delta_BT = policy_logprobs_BT - reference_logprobs_BT
    match kind:
        case "k1":
            return delta_BT
        case "abs":
            return delta_BT.abs()
        case "k2":
            return 0.5 * delta_BT.square()
        case "k3":
            return _k3(delta_BT)
        case "k3+":
            half_square_BT = 0.5 * delta_BT.square()
            return _k3(delta_BT).detach() + half_square_BT - half_square_BT.detach()
        case _:
            raise ValueError(f"unknown KL estimator {kind!r}; known: {', '.join(KINDS)}")


def _k3(delta_BT: Tensor) -> Tensor:
    return torch.exp((-delta_BT).clamp(-MAX_EXPONENT, MAX_EXPONENT)) - 1 + delta_BT
