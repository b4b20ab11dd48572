"""Engine against learner: the measure of their distance, the weights that correct it, the tokens dropped."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strop.learners.losses.correction import importance_weights
from strop.rl.correction import inside_band, mismatch
from strop.tracing.metrics import check_names

MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
OLD = torch.tensor([[-1.0, -0.5, -2.0, -9.0], [-0.2, -0.4, -9.0, -9.0]], dtype=torch.float64)


def behaviour(*changes: tuple[int, int, float]) -> torch.Tensor:
    """The learner's own logprobs, lowered at (row, column) by so many nats: ratios of e^nats."""
    made = OLD.clone()
    for row, column, nats in changes:
        made[row, column] -= nats
    return made


def test_half_a_nat_on_one_token_raises_its_weight_to_the_ratio_or_the_cap():
    weights, cut = importance_weights("token", OLD, behaviour((0, 1, 0.5)), MASK, threshold=2.0)
    assert weights[0, 1].item() == pytest.approx(math.exp(0.5))
    assert not cut.any()
    weights[0, 1] = 1.0
    assert torch.equal(weights, torch.ones(2, 4, dtype=torch.float64))
    weights, cut = importance_weights("token", OLD, behaviour((0, 1, 0.5)), MASK, threshold=1.5)
    assert weights[0, 1].item() == 1.5
    assert cut.nonzero().tolist() == [[0, 1]]


def test_a_sequence_is_weighed_by_the_product_of_its_ratios():
    given_ = behaviour((0, 0, 0.3), (0, 2, 0.4), (1, 0, -0.6))
    weights, cut = importance_weights("sequence", OLD, given_, MASK, threshold=5.0)
    assert weights[0, :3].tolist() == pytest.approx([math.exp(0.7)] * 3)
    assert weights[1, :2].tolist() == pytest.approx([math.exp(-0.6)] * 2)
    assert not cut.any()
    weights, cut = importance_weights("sequence", OLD, given_, MASK, threshold=2.0)
    assert weights[0, :3].tolist() == [2.0] * 3
    assert cut.tolist() == [[True, True, True, False], [False] * 4]


@pytest.mark.parametrize("kind", ["token", "sequence"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_weighs_one_and_spoils_no_row(kind: str, bad: float):
    given_ = behaviour()
    given_[0, 1] = bad
    weights, cut = importance_weights(kind, OLD, given_, MASK, threshold=2.0)
    assert torch.equal(weights, torch.ones(2, 4, dtype=torch.float64))
    assert not cut.any()


def test_weights_have_no_gradient():
    old = OLD.clone().requires_grad_()
    weights, _ = importance_weights("token", old, behaviour((0, 0, 0.1)), MASK, threshold=2.0)
    assert not weights.requires_grad


def kept(kind: str, *changes: tuple[int, int, float], low: float, high: float) -> list[list[bool]]:
    """What rejection leaves of each row's tokens."""
    given_ = behaviour(*changes)
    rows = [(OLD[row, mask].tolist(), given_[row, mask].tolist()) for row, mask in enumerate(MASK.bool())]
    return [list(inside_band(kind, old, other, low=low, high=high)) for old, other in rows]


def test_tokens_outside_the_band_are_dropped_alone():
    changes = ((0, 0, 2.0), (0, 1, 0.5), (1, 1, -1.0))  # ratios e^2, e^0.5, e^-1
    assert kept("token", *changes, low=0.5, high=5.0) == [[False, True, True], [True, False]]


def test_a_row_is_dropped_whole_when_its_geometric_mean_leaves_the_band():
    changes = ((0, 0, 0.06), (0, 1, -0.01), (1, 0, 0.06), (1, 1, -0.06))  # means 0.05/3 and 0
    assert kept("geometric", *changes, low=0.99, high=1.01) == [[False] * 3, [True, True]]
    assert kept("geometric", *changes, low=0.99, high=1.02) == [[True] * 3, [True, True]]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_token_without_a_behaviour_logprob_is_not_kept_and_not_in_the_mean_of_its_row(bad: float):
    assert inside_band("token", [-1.0, -1.0], [bad, -1.0], low=0.5, high=2.0) == (False, True)
    # A mean of 0.5 over the one token that counts; over both it would be 0.25.
    assert inside_band("geometric", [-1.0, -1.0], [bad, -1.5], low=0.5, high=math.exp(0.4)) == (False, False)
    assert inside_band("geometric", [-1.0, -1.0], [bad, -1.5], low=0.5, high=math.exp(0.6)) == (False, True)


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=3), st.sampled_from(["token", "geometric"]))
def test_identical_logprobs_are_always_kept_and_weighed_one(logprobs, kind: str):
    assert all(inside_band(kind, logprobs, logprobs, low=0.999, high=1.001))
    same, mask = torch.tensor([logprobs]), torch.ones(1, 3)
    weights, _ = importance_weights("token", same, same, mask, threshold=1.0)
    assert torch.equal(weights, torch.ones(1, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: importance_weights("row", OLD, OLD, MASK, threshold=2.0), "known: token, sequence"),
        (lambda: importance_weights("token", OLD, OLD, MASK, threshold=0.5), "at least 1"),
        (lambda: inside_band("row", [-1.0], [-1.0], low=0.5, high=2.0), "known: token, geometric"),
        (lambda: inside_band("token", [-1.0], [-1.0], low=1.1, high=2.0), "contain the ratio 1"),
        (lambda: inside_band("token", [-1.0], [-1.0], low=0.0, high=2.0), "contain the ratio 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(call, message: str):
    with pytest.raises(ValueError, match=message):
        call()


def test_half_a_nat_on_one_of_five_tokens_is_measured_as_by_hand():
    old = OLD[MASK.bool()].tolist()
    values = mismatch(zip(old, behaviour((0, 1, 0.5))[MASK.bool()].tolist(), strict=True))
    weight = math.exp(0.5)
    assert values == pytest.approx(
        {
            "mismatch/logprob_diff_mean": 0.1,
            "mismatch/logprob_diff_max": 0.5,
            "mismatch/kl_k1": -0.1,
            "mismatch/kl_k3": (weight - 1.5) / 5,
            "mismatch/effective_sample_size": (4 + weight) ** 2 / (5 * (4 + weight**2)),
        }
    )
    check_names(values)
    assert mismatch(zip(old, old, strict=True))["mismatch/logprob_diff_max"] == 0
    assert all(math.isnan(value) for value in mismatch([]).values())
