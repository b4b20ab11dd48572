"""What one pass computes: which tokens, where their KV goes, who attends with whom."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from strop.inference.local.attention import batched_products, fewest_keys
from strop.inference.local.batch import batched_length, make_batch
from strop.inference.local.kv_cache import KVCache, KVShape
from strop.inference.local.scheduler import MAX_STEP_TOKENS, _share

SHAPE = KVShape(num_layers=2, num_kv_heads=3, head_dim=4, dtype=torch.float32)


def _cache() -> KVCache:
    cache = KVCache(SHAPE, num_slots=4, max_length=20, device=torch.device("cpu"))
    cache.tokens_SL[:] = np.arange(80).reshape(4, 20)
    cache.num_cached_S[:] = [5, 2, 0, 0]
    return cache


def test_a_pass_of_single_tokens_needs_no_indices():
    cache = _cache()
    batch = make_batch(cache, np.array([1, 1]), np.array([True, True]))
    assert batch.ids_N.tolist() == [5, 22]
    assert batch.positions_N.tolist() == [5, 2]
    assert batch.last_S is None
    assert batch.logit_rows_M is None
    assert batch.spans == ()
    assert batch.attended == 16
    assert batch.mask_S1T is not None
    visible = (batch.mask_S1T[:, 0] == 0).sum(-1)
    assert visible.tolist() == [6, 6, 6, 3, 3, 3]


def test_a_mixed_pass_has_spans_for_prompts_and_rows_for_the_rest():
    cache = _cache()
    batch = make_batch(cache, np.array([1, 4, 0, 3]), np.array([True, False, False, True]))
    assert batch.ids_N.tolist() == [5, 22, 23, 24, 25, 60, 61, 62]
    assert batch.positions_N.tolist() == [5, 2, 3, 4, 5, 0, 1, 2]
    found = [(span.slot, span.begin, span.count, span.position) for span in batch.spans]
    assert found == [(1, 1, 4, 2), (3, 5, 3, 0)]
    (block,) = batch.spans[0].blocks
    assert (block.begin, block.end, block.attended) == (1, 5, 16)
    seen = (block.mask_L1T[:, 0] == 0).tolist()
    assert seen == [[key <= position for key in range(16)] for position in (2, 3, 4, 5)]
    assert batch.together_B is not None
    assert batch.together_rows_B is not None
    assert batch.together_B.tolist() == [0]
    assert batch.together_rows_B.tolist() == [0]
    assert batch.logit_rows_M is not None
    assert batch.logit_rows_M.tolist() == [0, 7]


def test_a_long_span_is_cut_into_blocks_that_each_read_to_their_own_end():
    shape = KVShape(num_layers=1, num_kv_heads=1, head_dim=4, dtype=torch.float32)
    cache = KVCache(shape, num_slots=1, max_length=150, device=torch.device("cpu"))
    cache.num_cached_S[0] = 10
    (span,) = make_batch(cache, np.array([139]), np.array([True])).spans
    assert [(block.begin, block.end, block.attended) for block in span.blocks] == [
        (0, 64, 80),
        (64, 128, 144),
        (128, 139, 150),
    ]
    for block in span.blocks:
        seen_L = (block.mask_L1T[:, 0] == 0).sum(dim=1).tolist()
        assert seen_L == [10 + row + 1 for row in range(block.begin, block.end)]


def test_rows_of_the_cache_are_where_views_find_them():
    cache = _cache()
    rows = cache.rows_of(np.array([1, 3]), np.array([2, 0]))
    values = torch.arange(2 * 6 * 4, dtype=torch.float32).view(2, 6, 4)
    cache.flat_layers[1].index_put_((rows,), values)
    assert torch.equal(cache.data[1, 0, 1, :, 2], values[0, :3])
    assert torch.equal(cache.data[1, 1, 1, :, 2], values[0, 3:])
    assert torch.equal(cache.data[1, 0, 3, :, 0], values[1, :3])
    assert float(cache.data.abs().sum()) == float(values.sum())


def test_swapping_slots_moves_all_that_belongs_to_them():
    cache = _cache()
    cache.num_tokens_S[:] = [6, 3, 0, 0]
    cache.data[:, :, 0, :, :5] = 1.0
    cache.data[:, :, 1, :, :2] = 2.0
    cache.logprobs_SL[0, 5] = -0.5
    cache.swap(0, 1)
    assert cache.num_cached_S.tolist()[:2] == [2, 5]
    assert cache.num_tokens_S.tolist()[:2] == [3, 6]
    assert cache.tokens_SL[1, :6].tolist() == [0, 1, 2, 3, 4, 5]
    assert cache.logprobs_SL[1, 5] == pytest.approx(-0.5)
    assert torch.all(cache.data[:, :, 0, :, :2] == 2.0)
    assert torch.all(cache.data[:, :, 1, :, :5] == 1.0)


def test_the_common_prefix_counts_only_what_is_known():
    cache = _cache()
    cache.tokens_SL[1] = cache.tokens_SL[0]
    found = cache.common_prefix(np.array([0, 1, 2, 9]), cache.num_cached_S)
    assert found.tolist() == [3, 2, 0, 0]


def test_a_few_long_sequences_attend_apart_when_that_is_cheaper():
    assert batched_length(np.array([100, 110, 90]), 3) == 110
    assert batched_length(np.array([100] * 63 + [4000]), 64) == 100
    assert batched_length(np.array([4000] * 64), 64) == 4000


def test_a_pass_gives_every_running_sequence_its_token_and_prompts_the_rest():
    taken = _share(np.array([1, MAX_STEP_TOKENS - 4, 1, 10, 7]))
    assert taken.tolist() == [1, MAX_STEP_TOKENS - 4, 1, 4, 0]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux' process table")
def test_memory_of_the_cache_is_taken_when_it_is_used():
    def resident_bytes() -> int:
        statm = Path("/proc/self/statm").read_text()
        return int(statm.split()[1]) * 4096

    before = resident_bytes()
    big = KVShape(num_layers=8, num_kv_heads=4, head_dim=64, dtype=torch.bfloat16)
    cache = KVCache(big, num_slots=32, max_length=4096, device=torch.device("cpu"))
    assert cache.data.numel() * 2 == 32 * 4096 * big.bytes_per_token == 1_073_741_824
    assert resident_bytes() - before < 100_000_000
    cache.data[:, :, 0, :, :16] = 1.0
    assert float(cache.data[7, 1, 0, 3, 15, 63]) == 1.0
    assert float(cache.data[7, 1, 1, 3, 15, 63]) == 0.0


def test_few_keys_are_filled_up_with_masked_ones_where_the_processor_sums_few_in_another_order():
    def product(q_BGD, k_BTD, v_BTD, mask_B1T, scale):
        attended_BGD = batched_products(q_BGD, k_BTD, v_BTD, mask_B1T, scale)
        return attended_BGD if k_BTD.shape[1] >= 80 else attended_BGD.nextafter(torch.tensor(9.0))

    shape = KVShape(num_layers=1, num_kv_heads=1, head_dim=64, dtype=torch.float32)
    cache = KVCache(shape, num_slots=2, max_length=200, device=torch.device("cpu"))
    cache.fewest_attended = fewest_keys(product, cache, 2)
    assert cache.fewest_attended == 80
    (block,) = make_batch(cache, np.array([3]), np.array([True])).spans[0].blocks
    assert block.attended == 80
    assert (block.mask_L1T[:, 0] == 0).sum(-1).tolist() == [1, 2, 3]
    assert make_batch(cache, np.array([1, 1]), np.array([True, True])).attended == 80
    cache.num_cached_S[0] = 90
    assert make_batch(cache, np.array([1, 1]), np.array([True, True])).attended == 96
