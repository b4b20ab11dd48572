"""Advantages by token and after a KL penalty, worked by hand."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fakes.packs import batch, mini_batch, sequence
from strop.config.job import HyperParameters
from strop.learners.losses.policy import kl
from strop.rl.batch import pack
from strop.rl.gae import batch_sequences
from strop.rl.token_advantage import (
    discounted_returns,
    kl_value,
    penalise,
    shape_advantages,
    shaped_metrics,
    token_rewards,
)
from strop.schema.batch import Score
from strop.tracing.metrics import check_names

numbers = st.floats(-3, 3)
episodes = st.lists(st.tuples(numbers, st.booleans()), min_size=1, max_size=12)


def rollout(rollout_id: str, reward: float, tokens: int, **changes):
    made = sequence([1, 2], range(10, 10 + tokens), rollout_id=rollout_id)
    return replace(made, reward=reward, advantage=0.0, **changes)


def hyper(algorithm: str, **changes) -> HyperParameters:
    return HyperParameters.model_validate({"algorithm": algorithm, **changes})


def advantages(made) -> list[list[float]]:
    return [
        list(one.token_advantages or (one.advantage,) * one.num_loss_tokens) for one in batch_sequences(made)
    ]


@given(episodes, st.floats(0.1, 1))
def test_observations_are_no_steps_whatever_stands_there(episode, gamma: float):
    rewards, mask = zip(*episode, strict=True)
    wild = [reward if sampled else 100.0 for reward, sampled in episode]
    kept = [reward for reward, sampled in episode if sampled]
    found = discounted_returns(wild, mask, gamma=gamma)
    assert found == discounted_returns(rewards, mask, gamma=gamma)
    cut = discounted_returns(kept, [True] * len(kept), gamma=gamma)
    assert [value for value, sampled in zip(found, mask, strict=True) if sampled] == cut


def test_without_discount_a_terminal_reward_is_the_return_of_every_token():
    assert discounted_returns(token_rewards(0.7, [0.0] * 4), [True] * 4, gamma=1.0) == [0.7] * 4


def test_the_discount_counts_action_tokens_only():
    mask = [True, False, False, True, True]
    assert discounted_returns([0, 0, 0, 0, 1.0], mask, gamma=0.5) == [0.25, 0, 0, 0.5, 1.0]


def test_reinforce_pp_whitens_returns_over_the_tokens_of_the_whole_step():
    """Rewards 1 on 3 tokens and 0 on 1: mean 3/4, sample variance (3/16 + 9/16) / 3 = 1/4."""
    minis = (mini_batch(pack([rollout("a", 1.0, 3)])), mini_batch(pack([rollout("b", 0.0, 1)])))
    made = shape_advantages(batch(*minis), hyper("reinforce_pp"), None)
    assert advantages(made)[0] == pytest.approx([0.5] * 3, abs=1e-6)
    assert advantages(made)[1] == pytest.approx([-1.5], abs=1e-6)
    assert [one.returns for one in batch_sequences(made)] == [(1.0,) * 3, (0.0,)]


def test_reinforce_pp_of_equal_rewards_is_exactly_zero():
    members = [rollout("a", 0.1 + 0.2, 3), rollout("b", 0.3, 2)]
    made = shape_advantages(batch(mini_batch(pack(members))), hyper("reinforce_pp"), None)
    assert advantages(made) == [[0.0] * 3, [0.0] * 2]
    assert not any(one.has_advantage for one in batch_sequences(made))


def test_a_discount_gives_earlier_tokens_less():
    made = shape_advantages(
        batch(mini_batch(pack([rollout("a", 1.0, 2)]))), hyper("reinforce_pp", gamma=0.5), None
    )
    assert [one.returns for one in batch_sequences(made)] == [(0.5, 1.0)]
    # mean 0.75, sample standard deviation 0.5 / sqrt(2)
    assert advantages(made)[0] == pytest.approx([-0.7071068, 0.7071068], abs=1e-6)


def test_a_penalty_counts_at_its_token_for_reinforce_pp():
    settings = hyper("reinforce_pp", kl_reward_coef=0.1)
    one = batch(mini_batch(pack([rollout("a", 1.0, 2)])))
    penalised = penalise(one, [Score(old_logprobs=(-1.0, -2.0), reference_logprobs=(-3.0, -1.0))], settings)
    assert penalised.penalties == [pytest.approx([0.2, -0.1])]
    assert [each.reference_logprobs for each in batch_sequences(penalised.batch)] == [(-3.0, -1.0)]
    made = shape_advantages(penalised.batch, settings, penalised.penalties)
    assert batch_sequences(made)[0].returns == pytest.approx((0.9, 1.1))  # -0.2 + 0.1 + 1, 0.1 + 1
    expected = {"critic/rewards/mean": 0.9, "critic/rewards/max": 0.9, "critic/rewards/min": 0.9}
    assert penalised.metrics == pytest.approx({**expected, "actor/reward_kl_penalty": 0.5})
    check_names(penalised.metrics)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("dr_grpo", [-0.05, 0.05]),  # rewards 1 - 0.1 * (2 + 1) = 0.7 and 0.8 around 0.75
        ("rloo", [-0.1, 0.1]),
        ("grpo", [-0.7070968, 0.7070968]),  # 0.05 / (0.0707107 + 1e-6)
    ],
)
def test_group_methods_take_a_rollout_s_penalties_from_its_reward(algorithm: str, expected: list[float]):
    settings = hyper(algorithm, kl_reward_coef=0.1)
    members = [rollout("a", 1.0, 1), rollout("a", 1.0, 1), rollout("b", 0.8, 2)]
    scores = [
        Score(old_logprobs=(-1.0,), reference_logprobs=(-3.0,)),
        Score(old_logprobs=(-1.0,), reference_logprobs=(-2.0,)),
        Score(old_logprobs=(-1.0, -1.0), reference_logprobs=(-1.5, -0.5)),
    ]
    penalised = penalise(batch(mini_batch(pack(members))), scores, settings)
    made = shape_advantages(penalised.batch, settings, penalised.penalties)
    found = {one.rollout_id: one.advantage for one in batch_sequences(made)}
    assert found == pytest.approx(dict(zip("ab", expected, strict=True)), abs=1e-6)
    assert penalised.metrics["critic/rewards/mean"] == pytest.approx(0.75)


def test_equal_rewards_without_a_difference_in_kl_stay_exactly_zero():
    settings = hyper("grpo", kl_reward_coef=0.1)
    members = [rollout("a", 0.1 + 0.2, 1), rollout("b", 0.3, 1)]
    scores = [Score(old_logprobs=(-1.0,), reference_logprobs=(-1.0,))] * 2
    penalised = penalise(batch(mini_batch(pack(members))), scores, settings)
    made = shape_advantages(penalised.batch, settings, penalised.penalties)
    assert advantages(made) == [[0.0], [0.0]]


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "k3+", "abs"])
@pytest.mark.parametrize("reference", [-0.5, -1.0, -2.5, -40.0])
def test_a_penalty_has_the_value_of_the_loss_s_estimator(kind: str, reference: float):
    expected = kl(kind, torch.tensor(-1.0).double(), torch.tensor(reference).double()).item()
    assert kl_value(kind, -1.0, reference) == pytest.approx(expected, rel=1e-12)
    assert kl_value(kind, math.nan, reference) == 0.0


def test_measures_weigh_tokens_and_fall_back_to_the_rollout_s_advantage():
    members = [replace(rollout("a", 1.0, 3), advantage=1.0), replace(rollout("b", 0.0, 1), advantage=-0.5)]
    values = shaped_metrics(batch(mini_batch(pack(members))))
    spread = {"mean": 2.5 / 4, "max": 1.0, "min": -0.5}
    names = ("advantages", "returns")
    assert values == {f"critic/{name}/{how}": value for name in names for how, value in spread.items()}
    check_names(values)
    assert all(math.isnan(value) for value in shaped_metrics(batch()).values())
