"""Queries and the cache -> attended values, for sequences of different lengths in one batch.

Sequences with one new token attend together over a view of the first slots; prompts, and sequences much longer
than the rest, attend one by one. Query heads that share a key head are folded into its query length, so that keys
are read once and never repeated.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from strop.engine.batch import Span, StepBatch
from strop.engine.kv_cache import KVCache


def attend(cache: KVCache, batch: StepBatch, layer: int, q_NHD: Tensor, scale: float) -> Tensor:
    """Attention of the step's tokens, whose keys and values are in the cache already.

    Shapes:
        q_NHD: (N, heads, head_dim); gives (N, heads * head_dim).
    """
    num_tokens, num_heads, head_dim = q_NHD.shape
    if batch.mask_S1T is not None and batch.last_S is None:
        out_BGD = _attend_together(cache, batch, layer, q_NHD, scale)
        return out_BGD.view(num_tokens, num_heads * head_dim)
    out_NE = q_NHD.new_empty((num_tokens, num_heads * head_dim))
    if batch.mask_S1T is not None:
        # Slots between those that attend together take part with some query, so that the keys stay a view.
        out_BGD = _attend_together(cache, batch, layer, q_NHD[batch.last_S], scale)
        out_SE = out_BGD.view(batch.num_slots, num_heads * head_dim)
        out_NE[batch.together_rows_B] = out_SE[batch.together_B]
    for span in batch.spans:
        out_NE[span.begin : span.begin + span.count] = _attend_alone(cache, span, layer, q_NHD, scale)
    return out_NE


def _attend_together(cache: KVCache, batch: StepBatch, layer: int, q_SHD: Tensor, scale: float) -> Tensor:
    assert batch.mask_S1T is not None
    num_slots, num_heads, head_dim = q_SHD.shape
    kv_heads = cache.shape.num_kv_heads
    keys, values = cache.data[layer, :, :num_slots, :, : batch.attended]
    q_BGD = q_SHD.reshape(num_slots * kv_heads, num_heads // kv_heads, head_dim)
    scores_BGT = torch.baddbmm(batch.mask_S1T, q_BGD, keys.flatten(0, 1).transpose(1, 2), alpha=scale)
    return torch.bmm(torch.softmax(scores_BGT, dim=-1), values.flatten(0, 1))


def _attend_alone(cache: KVCache, span: Span, layer: int, q_NHD: Tensor, scale: float) -> Tensor:
    num_heads, head_dim = q_NHD.shape[1:]
    kv_heads = cache.shape.num_kv_heads
    group = num_heads // kv_heads
    end = span.position + span.count
    keys, values = cache.data[layer, :, span.slot, :, :end]
    q_KGLD = q_NHD[span.begin : span.begin + span.count].view(span.count, kv_heads, group, head_dim)
    mask_LT = None
    if span.count > 1 and span.position > 0:
        mask_LT = torch.ones((span.count, end), dtype=torch.bool, device=q_NHD.device).tril_(span.position)
    out_KGLD = F.scaled_dot_product_attention(
        q_KGLD.permute(1, 2, 0, 3),
        keys[:, None].expand(kv_heads, group, end, head_dim),
        values[:, None].expand(kv_heads, group, end, head_dim),
        attn_mask=mask_LT,
        is_causal=span.count > 1 and span.position == 0,
        scale=scale,
    )
    return out_KGLD.permute(2, 0, 1, 3).reshape(span.count, num_heads * head_dim)
