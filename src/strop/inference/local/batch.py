"""Which tokens of which slots one forward pass computes, and how they attend.

Made by the scheduler from the counts of the cache, read by the models. Everything a layer needs is worked
out once a step here, none of it per layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strop.inference.local.adapter import AdaptedRows, Adapter, adapted_rows
from strop.inference.local.kv_cache import KVCache

ALONE_TOKENS = 1024
"""Attending to one slot by itself costs about as much as these many cached tokens in the whole batch."""

ROUND_LENGTH = 16
"""Attended lengths are rounded up to this, so that intermediate tensors keep their sizes for some steps."""


BLOCK_TOKENS = 64
"""Tokens of a span that attend in one product: all read the keys of the last one, so fewer waste less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some tokens of a span, rows `begin` to `end` of the batch; each sees what `mask_L1T` leaves it.

    Shapes:
        mask_L1T: (tokens, 1, T), 0 or -inf; T is `attended`.
    """

    begin: int
    end: int
    attended: int
    mask_L1T: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Tokens of one slot that attend by themselves: `count` of them from `position` on, rows `begin`...

    `blocks` are the same cut up, for attention that computes each token as it would alone.
    """

    slot: int
    begin: int
    count: int
    position: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """One forward pass over the first `num_slots` slots of the cache.

    Shapes:
        ids_N, positions_N: (N,) the tokens, slot after slot.
        cache_rows_NR: (N, 2 * kv_heads) where their keys and values go.
        last_S: (S,) row of each slot's last token; None where there is one token a slot, in order.
        together_B, together_rows_B: slots that attend together, and their rows; None where that is all.
        mask_S1T: (S * kv_heads, 1, T) added to scores, 0 or -inf; T is `attended`. None: no one does.
        logit_rows_M: (M,) rows to give logits for; None where it is all of them.
        adapted: which rows an adapter changes.
    """

    num_slots: int
    attended: int
    ids_N: Tensor
    positions_N: Tensor
    cache_rows_NR: Tensor
    last_S: Tensor | None
    together_B: Tensor | None
    together_rows_B: Tensor | None
    mask_S1T: Tensor | None
    spans: tuple[Span, ...]
    logit_rows_M: Tensor | None
    adapted: tuple[AdaptedRows, ...] = ()


def make_batch(
    cache: KVCache,
    take_S: npt.NDArray[np.int64],
    ready_S: npt.NDArray[np.bool_],
    adapters_S: Sequence[Adapter | None] = (),
) -> StepBatch:
    """The pass that computes the next `take_S` tokens of the first slots, with logits where `ready_S`.

    `adapters_S` are those of the slots; left out, none has one.

    Shapes:
        take_S: (S,) tokens of slots 0 to S-1, 0 where a slot waits.
    """
    num_slots = len(take_S)
    cached_S = cache.num_cached_S[:num_slots]
    begin_S = np.cumsum(take_S) - take_S
    slot_N = np.repeat(np.arange(num_slots), take_S)
    position_N = cached_S[slot_N] + np.arange(len(slot_N)) - begin_S[slot_N]
    length_S = cached_S + take_S

    single_S = take_S == 1
    alone_S = take_S > 1
    if single_S.any():
        attended = batched_length(length_S[single_S], num_slots)
        alone_S |= single_S & (length_S > attended)
    else:
        attended = 0
    spans = tuple(
        _span(cache, int(s), begin=int(begin_S[s]), count=int(take_S[s]), position=int(cached_S[s]))
        for s in np.flatnonzero(alone_S)
    )
    device = cache.data.device
    last_S = np.maximum(begin_S + take_S - 1, 0)
    together_B = np.flatnonzero(single_S & ~alone_S)
    one_each = len(together_B) == num_slots
    logit_rows = last_S[ready_S]
    attended = _rounded(cache, attended)
    return StepBatch(
        num_slots=num_slots,
        attended=attended,
        ids_N=torch.from_numpy(cache.tokens_SL[slot_N, position_N]).to(device),
        positions_N=torch.from_numpy(position_N).to(device),
        cache_rows_NR=cache.rows_of(slot_N, position_N),
        last_S=None if one_each else torch.from_numpy(last_S).to(device),
        together_B=None if one_each else torch.from_numpy(together_B).to(device),
        together_rows_B=None if one_each else torch.from_numpy(last_S[together_B]).to(device),
        mask_S1T=_mask(cache, length_S, attended) if attended else None,
        spans=spans,
        logit_rows_M=None if len(logit_rows) == len(slot_N) else torch.from_numpy(logit_rows).to(device),
        adapted=adapted_rows(adapters_S, take_S, device),
    )


def batched_length(length_B: npt.NDArray[np.int64], num_slots: int) -> int:
    """How far the batch attends together; slots that are longer attend alone.

    The batch pays its longest member's length for every slot, so a few long ones are cheaper apart.

    >>> batched_length(np.array([100, 110, 90]), 3)
    110
    >>> batched_length(np.array([100] * 63 + [4000]), 64)
    100
    """
    longest_first_B = np.sort(length_B)[::-1]
    cost_B = num_slots * longest_first_B + ALONE_TOKENS * np.arange(len(length_B))
    return int(longest_first_B[cost_B.argmin()])


def _rounded(cache: KVCache, attended: int) -> int:
    rounded = -(-attended // ROUND_LENGTH) * ROUND_LENGTH
    return min(cache.max_length, max(rounded, cache.fewest_attended))


def _span(cache: KVCache, slot: int, *, begin: int, count: int, position: int) -> Span:
    blocks: list[Block] = []
    for first in range(0, count, BLOCK_TOKENS):
        last = min(first + BLOCK_TOKENS, count)
        attended = _rounded(cache, position + last)
        hidden_LT = np.arange(attended)[None, :] > position + np.arange(first, last)[:, None]
        mask_LT = torch.from_numpy(np.where(hidden_LT, np.float32("-inf"), np.float32(0.0)))
        mask_L1T = mask_LT[:, None].to(device=cache.data.device, dtype=cache.shape.dtype)
        blocks.append(Block(begin=begin + first, end=begin + last, attended=attended, mask_L1T=mask_L1T))
    return Span(slot=slot, begin=begin, count=count, position=position, blocks=tuple(blocks))


def _mask(cache: KVCache, length_S: npt.NDArray[np.int64], attended: int) -> Tensor:
    hidden_ST = np.arange(attended)[None, :] >= length_S[:, None]
    mask_ST = torch.from_numpy(np.where(hidden_ST, np.float32("-inf"), np.float32(0.0)))
    # A waiting slot with nothing cached has every position masked: nobody reads it, but NaN is slow.
    mask_ST[:, 0] = 0.0
    mask_S1T = mask_ST.repeat_interleave(cache.shape.num_kv_heads, dim=0)[:, None]
    return mask_S1T.to(device=cache.data.device, dtype=cache.shape.dtype)
