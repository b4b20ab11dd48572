"""Queries and the cache -> attended values, for sequences of different lengths in one batch.

Sequences with one new token attend together over a view of the first slots; prompts, and sequences much
longer than the rest, attend one by one. Query heads that share a key head are folded into its query length,
so that keys are read once and never repeated.

On a CPU every token goes through one and the same product, whether it is sampled, or prefilled whole or in
parts, and whatever else is in the batch: its bits then depend on its own sequence alone, and a run that is
repeated or resumed samples the same, in whatever order agents call (tested, and tried out whenever an
engine is made). The price is attention of prompts at the rate of small products, and that few keys are
filled up with masked ones where the processor's kernel for few would sum in another order.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from strop.inference.local.batch import ROUND_LENGTH, Span, StepBatch
from strop.inference.local.kv_cache import KVCache

SUM_LENGTH = 128
"""Values summed in one product, at most: MKL was seen to cut sums of 208 and more."""

FILLED_LENGTH = 128
"""Keys that few are filled up to, at most. On Intel's processors with AVX-512, MKL has kernels of their own
for fewer than 32, 80, 96 or 128 keys, by the width of the heads and how many share a key head."""

ROWS_TRIED = 8
"""Pairs of sequence and key head with which products are compared when an engine is made."""

Product = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]
"""(queries_BGD, keys_BTD, values_BTD, mask_B1T, scale) -> (B, G, D)."""


class Attention:
    """Writes to a cache, reads from it, and knows the faster way to do so here."""

    def __init__(self, cache: KVCache, *, num_heads: int) -> None:
        self.cache = cache
        self._num_heads = num_heads
        self._together = _faster_product(cache, num_heads // cache.shape.num_kv_heads)
        on_cpu = cache.data.device.type == "cpu"
        self._alone = self._attend_one_by_one if on_cpu else self._attend_alone
        if on_cpu:
            cache.fewest_attended = fewest_keys(self._together, cache, num_heads // cache.shape.num_kv_heads)

    def __call__(self, batch: StepBatch, layer: int, q_NHD: Tensor, new_NRD: Tensor, scale: float) -> Tensor:
        """Store the step's keys and values, then attend to them and all before.

        Shapes:
            q_NHD: (N, heads, head_dim); gives (N, heads * head_dim).
            new_NRD: (N, 2 * kv_heads, head_dim), keys before values.
        """
        self.cache.flat_layers[layer].index_put_((batch.cache_rows_NR,), new_NRD)
        num_tokens, num_heads, head_dim = q_NHD.shape
        if batch.mask_S1T is not None and batch.last_S is None:
            return self._attend_together(batch, layer, q_NHD, scale).view(num_tokens, num_heads * head_dim)
        out_NE = q_NHD.new_empty((num_tokens, num_heads * head_dim))
        if batch.mask_S1T is not None:
            # Slots between those that attend together take part with some query: the keys stay a view.
            out_BGD = self._attend_together(batch, layer, q_NHD[batch.last_S], scale)
            out_SE = out_BGD.view(batch.num_slots, num_heads * head_dim)
            out_NE[batch.together_rows_B] = out_SE[batch.together_B]
        for span in batch.spans:
            out_NE[span.begin : span.begin + span.count] = self._alone(span, layer, q_NHD, scale)
        return out_NE

    def _attend_together(self, batch: StepBatch, layer: int, q_SHD: Tensor, scale: float) -> Tensor:
        assert batch.mask_S1T is not None
        num_slots, num_heads, head_dim = q_SHD.shape
        kv_heads = self.cache.shape.num_kv_heads
        keys, values = self.cache.data[layer, :, :num_slots, :, : batch.attended]
        q_BGD = q_SHD.reshape(num_slots * kv_heads, num_heads // kv_heads, head_dim)
        return self._together(q_BGD, keys.flatten(0, 1), values.flatten(0, 1), batch.mask_S1T, scale)

    def _attend_one_by_one(self, span: Span, layer: int, q_NHD: Tensor, scale: float) -> Tensor:
        """Each token as if it were the only one."""
        num_heads, head_dim = q_NHD.shape[1:]
        kv_heads = self.cache.shape.num_kv_heads
        parts: list[Tensor] = []
        for block in span.blocks:
            count, attended = block.end - block.begin, block.attended
            q_LKGD = q_NHD[block.begin : block.end].view(count, kv_heads, num_heads // kv_heads, head_dim)
            keys, values = self.cache.data[layer, :, span.slot, :, :attended]
            out_LKGD = torch.empty_like(q_LKGD)
            for head in range(kv_heads):
                k_LTD, v_LTD = (one[head].expand(count, attended, head_dim) for one in (keys, values))
                out_LKGD[:, head] = self._together(q_LKGD[:, head], k_LTD, v_LTD, block.mask_L1T, scale)
            parts.append(out_LKGD.view(count, num_heads * head_dim))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _attend_alone(self, span: Span, layer: int, q_NHD: Tensor, scale: float) -> Tensor:
        num_heads, head_dim = q_NHD.shape[1:]
        kv_heads = self.cache.shape.num_kv_heads
        group = num_heads // kv_heads
        end = span.position + span.count
        keys, values = self.cache.data[layer, :, span.slot, :, :end]
        q_KGLD = q_NHD[span.begin : span.begin + span.count].view(span.count, kv_heads, group, head_dim)
        mask_LT = None
        if span.count > 1 and span.position > 0:
            mask_LT = torch.ones((span.count, end), dtype=torch.bool, device=q_NHD.device)
            mask_LT.tril_(span.position)
        out_KGLD = F.scaled_dot_product_attention(
            q_KGLD.permute(1, 2, 0, 3),
            keys[:, None].expand(kv_heads, group, end, head_dim),
            values[:, None].expand(kv_heads, group, end, head_dim),
            attn_mask=mask_LT,
            is_causal=span.count > 1 and span.position == 0,
            scale=scale,
        )
        return out_KGLD.permute(2, 0, 1, 3).reshape(span.count, num_heads * head_dim)


def batched_products(q_BGD: Tensor, k_BTD: Tensor, v_BTD: Tensor, mask_B1T: Tensor, scale: float) -> Tensor:
    """Two batched matrix products; measured 1.7 times as fast as the fused kernel in float32.

    The second is cut, because a long sum is cut by the library at places that depend on its length.
    """
    if len(q_BGD) == 1:  # a single product is spread over the threads in another way than one of many
        q2, k2, v2, mask2 = (one.expand(2, -1, -1) for one in (q_BGD, k_BTD, v_BTD, mask_B1T))
        return batched_products(q2, k2, v2, mask2, scale)[:1]
    scores_BGT = torch.baddbmm(mask_B1T, q_BGD, k_BTD.transpose(1, 2), alpha=scale)
    probs_BGT = torch.softmax(scores_BGT, dim=-1)
    out_BGD = torch.bmm(probs_BGT[:, :, :SUM_LENGTH], v_BTD[:, :SUM_LENGTH])
    for begin in range(SUM_LENGTH, v_BTD.shape[1], SUM_LENGTH):
        end = begin + SUM_LENGTH
        out_BGD.baddbmm_(probs_BGT[:, :, begin:end], v_BTD[:, begin:end])
    return out_BGD


def fused_kernel(q_BGD: Tensor, k_BTD: Tensor, v_BTD: Tensor, mask_B1T: Tensor, scale: float) -> Tensor:
    """torch's own attention, with each pair of sequence and key head as a row of its batch."""
    out_B1GD = F.scaled_dot_product_attention(
        q_BGD[:, None], k_BTD[:, None], v_BTD[:, None], attn_mask=mask_B1T[:, None], scale=scale
    )
    return out_B1GD[:, 0]


def _faster_product(cache: KVCache, group: int) -> Product:
    """float32 on a CPU is known. Others depend on the processor and torch's build: measured once."""
    if cache.data.device.type != "cpu":
        return fused_kernel
    if cache.shape.dtype == torch.float32:
        return batched_products
    rows, length, head_dim = 64, min(128, cache.max_length), cache.shape.head_dim
    q_BGD = torch.zeros((rows, group, head_dim), dtype=cache.shape.dtype)
    k_BTD = torch.zeros((rows, length, head_dim), dtype=cache.shape.dtype)
    mask_B1T = torch.zeros((rows, 1, length), dtype=cache.shape.dtype)

    def seconds(product: Product) -> float:
        times: list[float] = []
        for _ in range(5):
            begin = time.perf_counter()
            product(q_BGD, k_BTD, k_BTD, mask_B1T, 1.0)
            times.append(time.perf_counter() - begin)
        return min(times)

    # A clear win only: which one it is should not change from run to run.
    return fused_kernel if 1.5 * seconds(fused_kernel) < seconds(batched_products) else batched_products


def fewest_keys(product: Product, cache: KVCache, group: int) -> int:
    """The smallest number of keys from which on masked ones after them change no bit, found by trying.

    Where they change bits at every number that is tried, it is the largest of them.
    """
    dtype, head_dim, seen = cache.shape.dtype, cache.shape.head_dim, min(ROUND_LENGTH, cache.max_length)
    tried = [*range(ROUND_LENGTH, FILLED_LENGTH + ROUND_LENGTH, ROUND_LENGTH), 2 * FILLED_LENGTH]
    lengths = sorted({min(length, cache.max_length) for length in tried})
    generator = torch.Generator().manual_seed(0)
    shapes = ((ROWS_TRIED, group, head_dim), *((ROWS_TRIED, lengths[-1], head_dim),) * 2)
    q_BGD, k_BTD, v_BTD = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    mask_B1T = torch.zeros((ROWS_TRIED, 1, lengths[-1]), dtype=dtype)
    mask_B1T[:, :, seen:] = float("-inf")

    def attended(length: int) -> Tensor:
        return product(q_BGD, k_BTD[:, :length], v_BTD[:, :length], mask_B1T[:, :, :length], head_dim**-0.5)

    settled, *before = reversed(lengths)
    expected = attended(settled)
    for length in before:
        if not torch.equal(attended(length), expected):
            break
        settled = length
    return min(settled, FILLED_LENGTH)
