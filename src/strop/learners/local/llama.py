"""Llama-family model, trees -> last hidden states, with a backward pass written by hand.

The same function as the transformers module, whose weights it reads; only faster and smaller: norms, rotation
and gating are recomputed instead of kept, attention follows the tree, weight gradients are multiplied
straight into their buffers. `forward` uses it where `supports` says so, the module itself everywhere
else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from strop.learners.local.gradients import add_product, add_rows, add_value
from strop.learners.local.packed_trees import PackedTrees
from strop.learners.local.tree_attention import TreePlan, attend, attend_backward, plan_attention

_MODEL_TYPES = frozenset({"llama", "mistral", "qwen2"})


def supports(model: nn.Module) -> bool:
    """Whether `hidden_states` computes this model: pre-norm, rotary, SwiGLU, no bias but on q, k, v."""
    config: Any = model.config
    if config.model_type not in _MODEL_TYPES or config.hidden_act not in ("silu", "swish"):
        return False
    layer = model.get_decoder().layers[0]  # pyright: ignore[reportCallIssue]
    unbiased = (layer.self_attn.o_proj, layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj)
    return all(linear.bias is None for linear in unbiased) and not config.attention_dropout


def hidden_states(model: nn.Module, trees: PackedTrees) -> Tensor:
    """(N, H) hidden states before the final norm."""
    decoder: Any = model.get_decoder()  # pyright: ignore[reportCallIssue]
    hidden_NH = _Embed.apply(trees.token_ids_N, decoder.embed_tokens.weight)
    exact = _exact_dtype(decoder.embed_tokens.weight.dtype)
    plan = plan_attention(trees.subtree_end_N, exact)
    cos_1ND, sin_1ND = decoder.rotary_emb(hidden_NH, position_ids=trees.positions_N[None])
    half = cos_1ND.shape[-1] // 2  # both halves are the same angles
    rotation = (cos_1ND[0, :, None, :half].contiguous(), sin_1ND[0, :, None, :half].contiguous())
    for layer in decoder.layers:
        attention, norm = layer.self_attn, layer.input_layernorm
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        hidden_NH = _AttentionBlock.apply(
            hidden_NH, norm.weight, *(linear.weight for linear in projections), attention.o_proj.weight,
            *(linear.bias for linear in projections), rotation, plan, norm.variance_epsilon,
            attention.head_dim, attention.scaling,
        )  # fmt: skip
        mlp, norm = layer.mlp, layer.post_attention_layernorm
        hidden_NH = _MlpBlock.apply(
            hidden_NH,
            norm.weight,
            mlp.gate_proj.weight,
            mlp.up_proj.weight,
            mlp.down_proj.weight,
            norm.variance_epsilon,
        )
    return hidden_NH


def final_norm(model: nn.Module, hidden_EH: Tensor) -> Tensor:
    norm: Any = model.get_decoder().norm  # pyright: ignore[reportCallIssue]
    return _Norm.apply(hidden_EH, norm.weight, norm.variance_epsilon)


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token_ids_N: Tensor, weight_VH: Tensor) -> Tensor:
        ctx.save_for_backward(token_ids_N, weight_VH)
        return F.embedding(token_ids_N, weight_VH)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        token_ids_N, weight_VH = ctx.saved_tensors
        return None, add_rows(weight_VH, token_ids_N, grads[0])


class _Norm(torch.autograd.Function):
    """RMSNorm."""

    @staticmethod
    def forward(ctx: Any, hidden_NH: Tensor, weight_H: Tensor, eps: float) -> Tensor:
        scale_N1 = _norm_scale(hidden_NH, eps)
        ctx.save_for_backward(hidden_NH, scale_N1, weight_H)
        return _normed(hidden_NH, scale_N1, weight_H)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *_norm_backward(grads[0], *ctx.saved_tensors), None


class _AttentionBlock(torch.autograd.Function):
    """x + o(attention(rotate(q(norm x)), rotate(k(norm x)), v(norm x)))."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        norm_H: Tensor,
        query_weight: Tensor,
        key_weight: Tensor,
        value_weight: Tensor,
        output_weight: Tensor,
        query_bias: Tensor | None,
        key_bias: Tensor | None,
        value_bias: Tensor | None,
        rotation: tuple[Tensor, Tensor],
        plan: TreePlan,
        eps: float,
        head_width: int,
        scale: float,
    ) -> Tensor:
        scale_N1 = _norm_scale(hidden_NH, eps)
        normed_NH = _normed(hidden_NH, scale_N1, norm_H)
        queries = F.linear(normed_NH, query_weight, query_bias).unflatten(-1, (-1, head_width))
        keys = F.linear(normed_NH, key_weight, key_bias).unflatten(-1, (-1, head_width))
        values = F.linear(normed_NH, value_weight, value_bias).unflatten(-1, (-1, head_width))
        _rotate_(queries, *rotation)
        _rotate_(keys, *rotation)
        attended = attend(queries, keys, values, plan, scale)
        ctx.save_for_backward(
            hidden_NH, scale_N1, queries, keys, values, attended, norm_H, query_weight, key_weight,
            value_weight, output_weight, query_bias, key_bias, value_bias,
        )  # fmt: skip
        ctx.rotation, ctx.plan, ctx.scale = rotation, plan, scale
        return torch.addmm(hidden_NH, attended.flatten(1), output_weight.t())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_NH = grads[0]
        (hidden_NH, scale_N1, queries, keys, values, attended, norm_H, query_weight, key_weight, value_weight,
         output_weight, *biases) = ctx.saved_tensors  # fmt: skip
        grad_output_weight = add_product(output_weight, grad_NH, attended.flatten(1))
        grad_attended = (grad_NH @ output_weight).view_as(attended)
        parts = attend_backward(grad_attended, queries, keys, values, attended, ctx.plan, ctx.scale)
        cos, sin = ctx.rotation
        _rotate_(parts[0], cos, -sin)
        _rotate_(parts[1], cos, -sin)
        normed_NH = _normed(hidden_NH, scale_N1, norm_H)
        flat = [part.flatten(1) for part in parts]
        weights = (query_weight, key_weight, value_weight)
        grad_weights = [
            add_product(weight, part, normed_NH) for weight, part in zip(weights, flat, strict=True)
        ]
        grad_biases = [
            None if bias is None else add_value(bias, part.sum(0))
            for bias, part in zip(biases, flat, strict=True)
        ]
        grad_input, grad_norm = _norm_backward(_sum_products(flat, weights), hidden_NH, scale_N1, norm_H)
        return (
            grad_input.add_(grad_NH), grad_norm, *grad_weights, grad_output_weight, *grad_biases,
            None, None, None, None, None,
        )  # fmt: skip


class _MlpBlock(torch.autograd.Function):
    """x + down(silu(gate(norm x)) * up(norm x))."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        norm_H: Tensor,
        gate_weight: Tensor,
        up_weight: Tensor,
        down_weight: Tensor,
        eps: float,
    ) -> Tensor:
        scale_N1 = _norm_scale(hidden_NH, eps)
        normed_NH = _normed(hidden_NH, scale_N1, norm_H)
        gate, up = normed_NH @ gate_weight.t(), normed_NH @ up_weight.t()
        ctx.save_for_backward(hidden_NH, scale_N1, gate, up, norm_H, gate_weight, up_weight, down_weight)
        return torch.addmm(hidden_NH, F.silu(gate).mul_(up), down_weight.t())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_NH = grads[0]
        hidden_NH, scale_N1, gate, up, norm_H, gate_weight, up_weight, down_weight = ctx.saved_tensors
        gated = F.silu(gate)
        grad_down = add_product(down_weight, grad_NH, gated * up)
        grad_product = grad_NH @ down_weight
        grad_up_side = gated.mul_(grad_product)
        grad_gate_side = torch.ops.aten.silu_backward(grad_product.mul_(up), gate)
        normed_NH = _normed(hidden_NH, scale_N1, norm_H)
        grad_gate = add_product(gate_weight, grad_gate_side, normed_NH)
        grad_up = add_product(up_weight, grad_up_side, normed_NH)
        grad_normed = _sum_products((grad_gate_side, grad_up_side), (gate_weight, up_weight))
        grad_input, grad_norm = _norm_backward(grad_normed, hidden_NH, scale_N1, norm_H)
        return grad_input.add_(grad_NH), grad_norm, grad_gate, grad_up, grad_down, None


def _sum_products(grads: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    total = grads[0] @ weights[0]
    for grad, weight in zip(grads[1:], weights[1:], strict=True):
        total.addmm_(grad, weight)
    return total


def _exact_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums and softmax: as the weights', but never below float32."""
    return torch.promote_types(dtype, torch.float32)


def _norm_scale(hidden_NH: Tensor, eps: float) -> Tensor:
    exact = hidden_NH.to(_exact_dtype(hidden_NH.dtype))
    return torch.linalg.vecdot(exact, exact).div_(exact.shape[-1]).add_(eps).rsqrt_()[:, None]


def _normed(hidden_NH: Tensor, scale_N1: Tensor, weight_H: Tensor) -> Tensor:
    return (hidden_NH * scale_N1).to(hidden_NH.dtype).mul_(weight_H)


def _norm_backward(
    grad_NH: Tensor, hidden_NH: Tensor, scale_N1: Tensor, weight_H: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the norm's input and of its weight."""
    unit_NH = hidden_NH * scale_N1
    exact_NH = grad_NH.to(unit_NH.dtype)
    grad_weight = add_value(weight_H, (exact_NH * unit_NH).sum(0))
    exact_NH = exact_NH * weight_H
    mean_N1 = torch.linalg.vecdot(exact_NH, unit_NH)[:, None].div_(unit_NH.shape[-1])
    return exact_NH.addcmul_(unit_NH, mean_N1, value=-1).mul_(scale_N1).to(grad_NH.dtype), grad_weight


def _rotate_(values: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotate the two halves of each head in place; with -sin, rotate back."""
    first, second = values.chunk(2, dim=-1)
    shifted = first * sin
    first.mul_(cos).addcmul_(second, sin, value=-1)
    second.mul_(cos).add_(shifted)
