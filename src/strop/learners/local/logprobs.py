"""Hidden states -> logprob and entropy of each sampled token, without the (tokens x vocabulary) matrix.

The head is applied to a chunk of rows at a time. Backward needs each row's probabilities again: those of the
first chunks are kept, up to a fixed budget, the rest are recomputed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from strop.learners.local.gradients import add_product, add_value

# One chunk of logits in float32 should stay in the last-level cache.
_CHUNK_BYTES = 25 << 20
# Probabilities kept for backward, for the whole forward pass.
_KEPT_BYTES = 192 << 20


def edge_logprobs(
    hidden_EH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    tokens_E: Tensor,
    temperatures_E: Tensor,
    *,
    entropy_gradient: bool = False,
    chunk: int | None = None,
    kept_bytes: int = _KEPT_BYTES,
) -> tuple[Tensor, Tensor]:
    """Logprob of each token, and entropy of its distribution, under softmax(logits / temperature).

    Shapes:
        hidden_EH: (E, H). weight_VH: (V, H) output embedding. tokens_E, temperatures_E: (E,).
    Units:
        chunk: rows at a time; by default what fits in cache. Results do not depend on it beyond rounding.
    Returns:
        logprobs_E with gradient, entropies_E without unless `entropy_gradient`; nats, at least float32.
    """
    rows = chunk or max(1, _CHUNK_BYTES // (4 * weight_VH.shape[0]))
    return _EdgeLogprobs.apply(
        hidden_EH, weight_VH, bias_V, tokens_E, temperatures_E, entropy_gradient, rows, kept_bytes
    )


class _EdgeLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_EH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        tokens_E: Tensor,
        temperatures_E: Tensor,
        entropy_gradient: bool,
        rows: int,
        kept_bytes: int,
    ) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(hidden_EH.dtype, torch.float32)
        logprobs_E = torch.empty(len(tokens_E), dtype=exact)
        entropies_E = torch.empty_like(logprobs_E)
        kept: list[Tensor] = []
        may_keep = any(ctx.needs_input_grad[:3])
        for start in range(0, len(tokens_E), rows):
            part = slice(start, start + rows)
            logits = _logits(hidden_EH[part], weight_VH, bias_V, temperatures_E[part])
            probabilities = torch.softmax(logits, dim=-1)
            # The largest probability is 1 / sum(exp(logit - largest logit)).
            log_total = logits.amax(-1) - probabilities.amax(-1).log()
            logprobs_E[part] = logits.gather(1, tokens_E[part, None])[:, 0] - log_total
            entropies_E[part] = log_total - torch.linalg.vecdot(probabilities, logits)
            kept_bytes -= probabilities.nbytes
            if may_keep and kept_bytes >= 0:
                kept.append(probabilities)
        ctx.save_for_backward(hidden_EH, weight_VH, bias_V, tokens_E, temperatures_E, entropies_E, *kept)
        ctx.rows, ctx.entropy_gradient = rows, entropy_gradient
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropies_E)
        return logprobs_E, entropies_E

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden_EH, weight_VH, bias_V, tokens_E, temperatures_E, entropies_E, *kept = ctx.saved_tensors
        grad_hidden_EH = torch.empty_like(hidden_EH)
        grad_weight = grad_bias = None
        for index, start in enumerate(range(0, len(tokens_E), ctx.rows)):
            part = slice(start, start + ctx.rows)
            if index < len(kept):
                probabilities = kept[index]
            else:
                probabilities = torch.softmax(
                    _logits(hidden_EH[part], weight_VH, bias_V, temperatures_E[part]), dim=-1
                )
            # d logprob / d logits = (one-hot - probabilities) / temperature
            grad_E1 = (grads[0][part] / temperatures_E[part]).to(probabilities.dtype)[:, None]
            grad_logits = (probabilities * -grad_E1).scatter_add_(1, tokens_E[part, None], grad_E1)
            if ctx.entropy_gradient:
                # d entropy / d logits = -probabilities (log probabilities + entropy) / temperature
                pull_E1 = (grads[1][part] / temperatures_E[part]).to(probabilities.dtype)[:, None]
                surprise = torch.xlogy(probabilities, probabilities)
                surprise.addcmul_(probabilities, entropies_E[part, None].to(probabilities.dtype))
                grad_logits.addcmul_(surprise, pull_E1, value=-1)
            if bias_V is not None:
                grad_bias = _sum(grad_bias, add_value(bias_V, grad_logits.sum(0)))
            grad_logits = grad_logits.to(hidden_EH.dtype)
            grad_hidden_EH[part] = grad_logits @ weight_VH
            grad_weight = _sum(grad_weight, add_product(weight_VH, grad_logits, hidden_EH[part]))
        return grad_hidden_EH, grad_weight, grad_bias, None, None, None, None, None


def _logits(hidden_RH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, temperatures_R: Tensor) -> Tensor:
    logits = torch.nn.functional.linear(hidden_RH, weight_VH, bias_V)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if bool((temperatures_R != 1).any()):
        logits.div_(temperatures_R.to(logits.dtype)[:, None])
    return logits


def _sum(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    return part if total is None else total if part is None else total.add_(part)
