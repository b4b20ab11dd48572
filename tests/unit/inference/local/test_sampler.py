"""Logits -> ids: masses by hand, frequencies against probabilities, and independence from the batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from strop.inference.local.sampler import Draws, sample, uniforms
from strop.schema.sampling import MIN_TEMPERATURE


def _draws(rows: int, *, uniform, temperature=1.0, top_p=1.0, top_k=0) -> Draws:
    return Draws(
        temperature_M=np.full(rows, temperature, dtype=np.float32),
        top_p_M=np.full(rows, top_p, dtype=np.float32),
        top_k_M=np.full(rows, top_k, dtype=np.int64),
        uniform_M=np.broadcast_to(np.asarray(uniform, dtype=np.float64), (rows,)).copy(),
    )


def _logits(probs: list[float], rows: int = 1) -> torch.Tensor:
    return torch.tensor([probs], dtype=torch.float32).log().repeat(rows, 1)


PROBS = [0.1, 0.4, 0.2, 0.3]


@pytest.mark.parametrize(
    ("uniform", "expected"), [(0.0, 0), (0.09, 0), (0.11, 1), (0.49, 1), (0.51, 2), (0.71, 3), (0.999, 3)]
)
def test_a_token_is_found_where_the_cumulated_probability_passes_the_number(uniform, expected):
    ids, logprobs = sample(_logits(PROBS), _draws(1, uniform=uniform))
    assert ids.tolist() == [expected]
    assert logprobs[0] == pytest.approx(math.log(PROBS[expected]), abs=1e-5)


def test_top_k_keeps_the_k_most_likely_and_shares_the_rest_among_them():
    # 0.4 and 0.3 stay, as 4/7 and 3/7, in this order.
    for uniform, expected, mass in ((0.5, 1, 4 / 7), (0.6, 3, 3 / 7)):
        ids, logprobs = sample(_logits(PROBS), _draws(1, uniform=uniform, top_k=2))
        assert ids.tolist() == [expected]
        assert logprobs[0] == pytest.approx(math.log(mass), abs=1e-5)


def test_top_p_keeps_the_token_that_passes_the_threshold():
    # 0.4 + 0.3 = 0.7 < 0.75, so 0.2 is needed too: masses 4/9, 3/9, 2/9.
    for uniform, expected, mass in ((0.4, 1, 4 / 9), (0.5, 3, 3 / 9), (0.9, 2, 2 / 9)):
        ids, logprobs = sample(_logits(PROBS), _draws(1, uniform=uniform, top_p=0.75))
        assert ids.tolist() == [expected]
        assert logprobs[0] == pytest.approx(math.log(mass), abs=1e-5)


def test_top_p_counts_mass_after_top_k():
    # Of the three best (0.4, 0.3, 0.2)/0.9 the first two have 0.777 of the mass, enough for 0.75.
    ids, logprobs = sample(_logits(PROBS), _draws(1, uniform=0.99, top_k=3, top_p=0.75))
    assert ids.tolist() == [3]
    assert logprobs[0] == pytest.approx(math.log(3 / 7), abs=1e-5)


def test_a_tiny_top_p_is_the_most_likely_token():
    ids, logprobs = sample(_logits(PROBS), _draws(1, uniform=0.999, top_p=1e-6))
    assert ids.tolist() == [1]
    assert logprobs.tolist() == pytest.approx([0.0], abs=1e-6)


def test_top_p_over_a_flat_vocabulary_looks_beyond_the_short_list():
    logits = torch.zeros((1, 5000))
    ids, logprobs = sample(logits, _draws(1, uniform=0.5, top_p=0.9))
    assert logprobs[0] == pytest.approx(-math.log(4500), abs=1e-3)
    assert 0 <= ids[0] < 5000


def test_temperature_divides_the_logits():
    # At temperature 0.5 probabilities are squared and normalised: 0.16 / 0.3.
    ids, logprobs = sample(_logits(PROBS), _draws(1, uniform=0.2, temperature=0.5))
    assert ids.tolist() == [1]
    assert logprobs[0] == pytest.approx(math.log(0.16 / 0.30), abs=1e-5)


def test_greedy_takes_the_best_and_reports_the_untempered_logprob():
    ids, logprobs = sample(_logits(PROBS), _draws(1, uniform=0.01, temperature=0.0))
    assert ids.tolist() == [1]
    assert logprobs[0] == pytest.approx(math.log(0.4), abs=1e-5)


@pytest.mark.parametrize("temperature", [MIN_TEMPERATURE, 1e-8])
def test_next_to_no_temperature_takes_the_best_and_is_sure_of_it(temperature):
    ids, logprobs = sample(_logits(PROBS, 2), _draws(2, uniform=[0.01, 0.99], temperature=temperature))
    assert ids.tolist() == [1, 1]
    assert logprobs.tolist() == [0.0, 0.0]


def test_rows_of_all_kinds_share_a_batch_without_mixing():
    kinds = [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 0.5, "top_k": 2},
        {"top_p": 0.75},
        {"top_k": 3, "top_p": 0.75},
        {"temperature": 2.0},
    ]
    uniform = [0.3, 0.95, 0.8, 0.6, 0.9, 0.05]
    alone = [
        sample(_logits(PROBS), _draws(1, uniform=u, **kind)) for u, kind in zip(uniform, kinds, strict=True)
    ]
    batch = Draws(
        temperature_M=np.array([k.get("temperature", 1.0) for k in kinds], dtype=np.float32),
        top_p_M=np.array([k.get("top_p", 1.0) for k in kinds], dtype=np.float32),
        top_k_M=np.array([k.get("top_k", 0) for k in kinds], dtype=np.int64),
        uniform_M=np.array(uniform),
    )
    ids, logprobs = sample(_logits(PROBS, rows=6), batch)
    assert ids.tolist() == [int(one[0][0]) for one in alone]
    assert logprobs.tolist() == pytest.approx([float(one[1][0]) for one in alone], abs=1e-6)


def test_frequencies_follow_the_probabilities():
    rows = 20_000
    probs = np.array([0.05, 0.3, 0.15, 0.02, 0.28, 0.2])
    seeds = np.full(rows, 11, dtype=np.uint64)
    uniform = uniforms(seeds, np.arange(rows))
    ids, _ = sample(_logits(probs.tolist(), rows=rows), _draws(rows, uniform=uniform))
    counts = np.bincount(ids, minlength=6)
    chi_square = float((((counts - rows * probs) ** 2) / (rows * probs)).sum())
    assert chi_square < 20.5  # 99.9 % point of chi-square with 5 degrees of freedom


def test_random_numbers_are_even_over_tokens_and_over_seeds():
    by_token = uniforms(np.full(10_000, 5, dtype=np.uint64), np.arange(10_000))
    by_seed = uniforms(np.arange(10_000, dtype=np.uint64), np.zeros(10_000, dtype=np.int64))
    for numbers in (by_token, by_seed):
        assert numbers.min() >= 0.0
        assert numbers.max() < 1.0
        counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
        assert float(((counts - 500) ** 2 / 500).sum()) < 43.8  # 99.9 % point, 19 degrees of freedom
    assert abs(np.corrcoef(by_token[:-1], by_token[1:])[0, 1]) < 0.03
    # Neighbouring seeds do not walk through the same numbers, one step apart.
    first, second = (uniforms(np.full(50, s, dtype=np.uint64), np.arange(50)) for s in (1, 2))
    assert not np.isin(first, second).any()


def test_a_token_of_no_probability_is_never_sampled():
    logits = torch.tensor([[0.0, float("-inf"), 0.0, float("-inf")]])
    for uniform in (0.0, 0.5, np.nextafter(1.0, 0.0)):
        ids, logprobs = sample(logits.clone(), _draws(1, uniform=uniform))
        assert ids[0] in (0, 2)
        assert logprobs[0] == pytest.approx(math.log(0.5))


def test_logits_that_are_not_finite_give_a_logprob_that_tells():
    logits = torch.zeros((3, 4))
    logits[1, 2] = float("nan")
    _, logprobs = sample(logits, _draws(3, uniform=0.4))
    assert np.isnan(logprobs).tolist() == [False, True, False]


def test_no_rows_give_no_tokens():
    ids, logprobs = sample(torch.zeros((0, 4)), _draws(0, uniform=0.5))
    assert ids.shape == logprobs.shape == (0,)
