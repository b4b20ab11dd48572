"""Advantages and returns by a critic's values: by hand, by the definition, and blind to observations."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.packs import batch, mini_batch, sequence
from strop.errors import TrainingError
from strop.rl import advantage
from strop.rl.batch import pack
from strop.rl.gae import gae, gae_metrics, whiten, with_gae
from strop.tracing.metrics import check_names

numbers = st.floats(-3, 3)
episodes = st.lists(st.tuples(numbers, numbers, st.booleans()), min_size=1, max_size=12)
shares = st.floats(0, 1)


def by_definition(rewards, values, gamma: float, lam: float) -> list[float]:
    """A_t = sum over k of (gamma lam)^k delta_{t+k}."""
    following = [*values[1:], 0.0]
    deltas = [r + gamma * after - v for r, v, after in zip(rewards, values, following, strict=True)]
    return [
        math.fsum((gamma * lam) ** k * delta for k, delta in enumerate(deltas[start:]))
        for start in range(len(deltas))
    ]


def test_three_tokens_by_hand():
    advantages, returns = gae([0, 0, 1], [0.2, 0.4, 0.6], [1, 1, 1], gamma=0.9, lam=0.5)
    # delta = 0.16, 0.14, 0.4
    assert advantages == pytest.approx([0.304, 0.32, 0.4])
    assert returns == pytest.approx([0.504, 0.72, 1.0])


def test_observations_between_two_answers_are_no_steps():
    advantages, returns = gae(
        [0, 9, 9, 0, 9, 1, 9], [0.2, 7, 7, 0.4, 7, 0.6, 7], [1, 0, 0, 1, 0, 1, 0], gamma=0.9, lam=0.5
    )
    assert advantages == pytest.approx([0.304, 0, 0, 0.32, 0, 0.4, 0])
    assert returns == pytest.approx([0.504, 0, 0, 0.72, 0, 1.0, 0])


@given(episodes, shares, shares)
def test_it_is_the_discounted_sum_of_temporal_differences(episode, gamma: float, lam: float):
    rewards, values, _ = zip(*episode, strict=True)
    found, returns = gae(rewards, values, [True] * len(values), gamma=gamma, lam=lam)
    assert found == pytest.approx(by_definition(rewards, values, gamma, lam), abs=1e-9)
    assert returns == pytest.approx([a + v for a, v in zip(found, values, strict=True)], abs=1e-9)


@given(episodes, shares, shares)
def test_whatever_stands_at_observations_changes_nothing(episode, gamma: float, lam: float):
    rewards, values, mask = (list(column) for column in zip(*episode, strict=True))
    wild_rewards = [reward if sampled else 100.0 for reward, sampled in zip(rewards, mask, strict=True)]
    wild_values = [value if sampled else math.nan for value, sampled in zip(values, mask, strict=True)]
    expected = gae(rewards, values, mask, gamma=gamma, lam=lam)
    assert gae(wild_rewards, wild_values, mask, gamma=gamma, lam=lam) == expected


@given(episodes, shares, shares)
def test_cutting_the_observations_out_gives_the_same(episode, gamma: float, lam: float):
    rewards, values, mask = zip(*episode, strict=True)
    kept = [index for index, sampled in enumerate(mask) if sampled]
    whole = gae(rewards, values, mask, gamma=gamma, lam=lam)
    cut = gae(
        [rewards[at] for at in kept], [values[at] for at in kept], [1] * len(kept), gamma=gamma, lam=lam
    )
    assert [row[at] for row in whole for at in kept] == [number for row in cut for number in row]


@given(episodes)
def test_without_discount_it_is_what_is_still_to_come_minus_the_value(episode):
    rewards, values, _ = zip(*episode, strict=True)
    found, _ = gae(rewards, values, [1] * len(values), gamma=1.0, lam=1.0)
    to_come = [math.fsum(rewards[start:]) for start in range(len(rewards))]
    assert found == pytest.approx([r - v for r, v in zip(to_come, values, strict=True)], abs=1e-9)


def test_arrays_are_taken_as_lists_are():
    rewards, values, mask = [0.0, 0.0, 1.0], [0.2, 0.4, 0.6], [True, False, True]
    arrays = (np.array(rewards), np.array(values), np.array(mask))
    assert gae(*arrays, gamma=0.9, lam=0.5) == gae(rewards, values, mask, gamma=0.9, lam=0.5)


def test_nothing_sampled_gives_zeros():
    assert gae([1.0, 1.0], [1.0, 1.0], [0, 0], gamma=1.0, lam=1.0) == ([0.0, 0.0], [0.0, 0.0])
    assert gae([], [], [], gamma=1.0, lam=1.0) == ([], [])


def test_it_stands_beside_the_other_advantages():
    assert advantage.gae is gae


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="found 2, 3 and 2"):
        gae([0.0, 1.0], [0.0, 0.0, 0.0], [1, 1], gamma=1.0, lam=1.0)


@pytest.mark.parametrize("changes", [{"gamma": 1.5}, {"gamma": -0.1}, {"lam": math.nan}])
def test_discounts_outside_their_range_are_refused(changes):
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        gae([0.0], [0.0], [1], **{"gamma": 1.0, "lam": 1.0, **changes})


@pytest.mark.parametrize("huge", [1e200, -1.7e308, math.nan, math.inf])
def test_rewards_whose_squares_overflow_are_refused_where_they_count(huge):
    with pytest.raises(ValueError, match=r"within 1e\+18 of 0, found .* at 1"):
        gae([0.0, huge], [0.0, 0.0], [1, 1], gamma=1.0, lam=1.0)
    assert gae([0.0, huge], [0.0, 0.0], [1, 0], gamma=1.0, lam=1.0) == ([0.0, 0.0], [0.0, 0.0])


def test_the_largest_rewards_have_finite_advantages_and_returns():
    first, second = replace(sequence([1], [3]), reward=1e15), replace(sequence([2], [4]), reward=-1e15)
    made = with_gae(batch(mini_batch(pack([first]), pack([second]))), [[0.0], [0.0]], gamma=1.0, lam=1.0)
    assert [one.returns for one in sequences(made)] == [(1e15,), (-1e15,)]
    assert [one.token_advantages for one in sequences(made)] == [
        (pytest.approx(0.5**0.5),),
        (pytest.approx(-(0.5**0.5)),),
    ]
    assert all(math.isfinite(value) or math.isnan(value) for value in gae_metrics(made).values())


@given(st.lists(numbers, min_size=3, max_size=20, unique=True))
def test_whitened_values_have_mean_zero_and_variance_one(values):
    values = [10 * value + index for index, value in enumerate(values)]
    found = np.array(whiten(values))
    assert found.mean() == pytest.approx(0, abs=1e-9)
    if np.var(values) > 1e-3:
        assert found.var(ddof=1) == pytest.approx(1, abs=1e-4)


def test_whitening_equal_values_gives_zeros():
    assert whiten([0.5, 0.5, 0.5]) == [0.0, 0.0, 0.0]
    assert whiten([3.0]) == [0.0]
    assert whiten([]) == []


def judged_batch(**changes):
    """Two rollouts of two and one sampled tokens in one mini-batch, one of two tokens in the next."""
    first = replace(sequence([1, 2], [3, 4], rollout_id="a"), reward=1.0)
    second = replace(sequence([1, 2], [5], rollout_id="b"), reward=0.0)
    third = replace(sequence([6], [7, 8], rollout_id="c"), reward=0.5)
    made = batch(mini_batch(pack([first, second])), mini_batch(pack([third])))
    values = [[0.5, 0.25], [0.5], [0.0, 1.0]]
    return with_gae(made, values, **{"gamma": 1.0, "lam": 1.0, **changes})


def sequences(of):
    return [one for mini in of.mini_batches for packed in mini.packs for one in packed.sequences]


def test_a_rollouts_reward_falls_to_its_last_token_and_returns_stay_raw():
    made = judged_batch()
    assert [one.returns for one in sequences(made)] == [(1.0, 1.0), (0.0,), (0.5, 0.5)]
    assert [one.old_values for one in sequences(made)] == [(0.5, 0.25), (0.5,), (0.0, 1.0)]


def test_discounts_reach_the_batch():
    made = judged_batch(gamma=0.5, lam=0.0)
    # With lam 0 the return is the reward plus the discounted next value.
    assert [one.returns for one in sequences(made)] == [(0.125, 1.0), (0.0,), (0.5, 0.5)]


def test_advantages_are_whitened_over_all_mini_batches_at_once():
    raw = [0.5, 0.75, -0.5, 0.5, -0.5]
    mean, std = np.mean(raw), np.std(raw, ddof=1)
    found = [value for one in sequences(judged_batch()) for value in one.token_advantages]
    assert found == pytest.approx([(value - mean) / std for value in raw], abs=1e-6)


def test_rewards_of_single_tokens_are_added():
    made = batch(mini_batch(pack([replace(sequence([1], [2, 3]), reward=1.0)])))
    made = with_gae(made, [[0.0, 0.0]], gamma=1.0, lam=1.0, token_rewards=[[-0.25, -0.5]])
    assert sequences(made)[0].returns == (0.25, 0.5)


def test_the_rest_of_the_batch_is_untouched():
    made = judged_batch()
    bare = [replace(one, token_advantages=(), returns=(), old_values=()) for one in sequences(made)]
    assert [one.rollout_id for one in bare] == ["a", "b", "c"]
    assert [one.reward for one in bare] == [1.0, 0.0, 0.5]
    assert [mini.num_loss_tokens for mini in made.mini_batches] == [3, 2]


def test_values_that_do_not_fit_the_batch_are_refused():
    made = batch(mini_batch(pack([sequence([1], [2, 3])])))
    with pytest.raises(ValueError, match="values must hold one number a sampled token"):
        with_gae(made, [[0.0]], gamma=1.0, lam=1.0)
    with pytest.raises(ValueError, match="token_rewards must hold one number a sampled token"):
        with_gae(made, [[0.0, 0.0]], gamma=1.0, lam=1.0, token_rewards=[])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_ends_the_step(value: float):
    made = batch(mini_batch(pack([sequence([1], [2, 3])])))
    with pytest.raises(TrainingError, match="values are not finite"):
        with_gae(made, [[0.0, value]], gamma=1.0, lam=1.0)


def test_measures_by_hand():
    metrics = gae_metrics(judged_batch())
    check_names(metrics)
    returns, values = [1.0, 1.0, 0.0, 0.5, 0.5], [0.5, 0.25, 0.5, 0.0, 1.0]
    assert metrics["critic/returns/mean"] == pytest.approx(0.6)
    assert (metrics["critic/returns/max"], metrics["critic/returns/min"]) == (1.0, 0.0)
    assert metrics["critic/values/mean"] == pytest.approx(0.45)
    assert (metrics["critic/values/max"], metrics["critic/values/min"]) == (1.0, 0.0)
    assert metrics["critic/advantages/mean"] == pytest.approx(0.0, abs=1e-9)
    missed = np.var(np.subtract(returns, values), ddof=1)
    expected = 1 - missed / (np.var(returns, ddof=1) + 1e-5)
    assert metrics["critic/vf_explained_var"] == pytest.approx(expected)
    assert expected < 0  # these values are worse than a constant


def test_measures_of_nothing_are_no_numbers():
    assert all(math.isnan(value) for value in gae_metrics(batch()).values())
