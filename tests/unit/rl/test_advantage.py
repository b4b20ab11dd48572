"""Advantages against golden values and the truths of groups."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.rl.advantage import group_advantages, step_advantages, whitened
from strop.schema.function import TaskStatus
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import Group, Trajectory, Turn

KINDS = ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline")


@pytest.mark.parametrize(
    ("kind", "rewards", "expected"),
    [
        ("grpo", [1, 0, 0, 1], [0.8660239, -0.8660239, -0.8660239, 0.8660239]),
        ("grpo", [1, 0.5, 0, 0], [1.3055797, 0.2611159, -0.7833479, -0.7833479]),
        ("dr_grpo", [1, 0, 0, 1], [0.5, -0.5, -0.5, 0.5]),
        ("dr_grpo", [1, 0.5, 0, 0], [0.625, 0.125, -0.375, -0.375]),
        # 4/3 of the centred rewards; by hand 1 - (0.5 + 0 + 0)/3 = 0.8333333
        ("rloo", [1, 0.5, 0, 0], [0.8333333, 0.1666667, -0.5, -0.5]),
        ("reinforce_pp_baseline", [1, 0.5, 0, 0], [0.625, 0.125, -0.375, -0.375]),
    ],
)
def test_advantages_equal_the_golden_values(kind, rewards, expected):
    assert group_advantages(kind, rewards) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rewards", [[0.7] * 5, [0.1 + 0.2, 0.3], [0.0, 0.0], [-1e6, -1e6], [1e-13, 0.0]])
def test_equal_rewards_have_advantage_exactly_zero(kind, rewards):
    assert group_advantages(kind, rewards) == [0.0] * len(rewards)


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_but_real_difference_still_counts(kind):
    better, worse = group_advantages(kind, [0.3001, 0.3])
    assert better > 0 > worse


@pytest.mark.parametrize("rewards", [[], [1.0]])
def test_fewer_than_two_rewards_have_no_baseline(rewards):
    with pytest.raises(ValueError, match=f"at least two rewards.*found {len(rewards)}"):
        group_advantages("grpo", rewards)


def test_a_reward_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="finite"):
        group_advantages("grpo", [1.0, float("nan")])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("huge", [1e200, -1.7e308])
def test_rewards_whose_squares_overflow_are_refused_with_the_bound(kind, huge):
    with pytest.raises(ValueError, match=r"within 1e\+18 of 0, found 1(e\+200|\.7e\+308): scale them down"):
        group_advantages(kind, [huge, 0.5])


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_rewards_have_finite_advantages(kind):
    better, worse = group_advantages(kind, [1e15, -1e15])
    assert better == -worse
    assert better == pytest.approx({"grpo": 0.5**0.5, "rloo": 2e15}.get(kind, 1e15))


def test_an_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"grpo, dr_grpo, rloo, reinforce_pp_baseline; found 'gppo'"):
        group_advantages("gppo", [1.0, 0.0])  # pyright: ignore[reportArgumentType]


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=6), st.sampled_from(KINDS))
def test_advantages_sum_to_zero_and_follow_their_members(rewards, kind):
    values = group_advantages(kind, rewards)
    assert sum(values) == pytest.approx(0, abs=1e-6)
    for order in itertools.islice(itertools.permutations(range(len(rewards))), 4):
        shuffled = group_advantages(kind, [rewards[index] for index in order])
        assert shuffled == [values[index] for index in order]


def test_whitening_weighs_each_value_by_its_tokens():
    """1 on 3 tokens, 0 on 1: mean 3/4, sample variance 1/4, as if each token stood there alone."""
    assert whitened([1.0, 0.0], [3, 1]) == pytest.approx([0.5, -1.5], abs=1e-7)
    assert whitened([1.0, 1.0, 1.0, 0.0], [1, 1, 1, 1]) == pytest.approx([0.5, 0.5, 0.5, -1.5], abs=1e-7)


@pytest.mark.parametrize(
    ("values", "counts"),
    [([], []), ([3.0], [1]), ([0.1 + 0.2, 0.3], [5, 5]), ([1.0, 2.0], [3, 0]), ([7.0] * 3, [2, 2, 2])],
)
def test_nothing_to_tell_apart_whitens_to_exactly_zero(values, counts):
    assert whitened(values, counts) == [0.0] * len(values)


def trajectory(rollout_id: str, reward: float | None, *, tokens: int = 2) -> Trajectory:
    turn = Turn(
        index=0,
        prompt_ids=(1, 2),
        completion_ids=(3,) * tokens,
        behaviour_logprobs=(-1.0,) * tokens,
        policy_versions=(0,) * tokens,
        temperature=1.0,
        finish_reason=FinishReason.STOP,
        messages=(),
        response={},
        latency_s=0.0,
    )
    return Trajectory(
        rollout_id=rollout_id,
        attempt_id="a1",
        group_id="g",
        sample_id="x",
        attempts=1,
        status=TaskStatus.FAILED if reward is None else TaskStatus.SUCCESS,
        turns=(turn,),
        reward=reward,
    )


def group(*members: Trajectory) -> Group:
    sample = Sample(sample_id="x", row=1, messages=[{"role": "user", "content": "same prompt"}])
    return Group(group_id="g", sample=sample, trajectories=members)


def test_a_failed_member_leaves_the_baseline_to_its_siblings():
    values = step_advantages(
        "dr_grpo",
        [group(trajectory("a", 1.0), trajectory("b", None), trajectory("c", 0.0), trajectory("d", 0.5))],
    )
    assert values == {"a": 0.5, "c": -0.5, "d": 0.0}


def test_a_member_without_sampled_tokens_does_not_shift_the_baseline():
    members = (trajectory("a", 1.0), trajectory("b", 0.0), trajectory("empty", 100.0, tokens=0))
    assert step_advantages("dr_grpo", [group(*members)]) == {"a": 0.5, "b": -0.5}


def test_a_group_of_one_survivor_is_left_out():
    assert step_advantages("grpo", [group(trajectory("a", 1.0), trajectory("b", None))]) == {}


def test_reinforce_pp_needs_no_group_and_whitens_over_the_step():
    groups = [
        group(trajectory("a", 1.0), trajectory("b", 1.0)),
        group(trajectory("c", 0.0), trajectory("d", 0.0)),
    ]
    values = step_advantages("reinforce_pp", groups)
    # Mean 1/2 over 8 tokens, sample variance 2/7.
    assert values == pytest.approx(
        {"a": 0.9354143, "b": 0.9354143, "c": -0.9354143, "d": -0.9354143}, abs=1e-6
    )


def test_the_baseline_form_whitens_over_the_step_and_leaves_flat_groups_at_zero():
    uneven = group(trajectory("a", 1.0, tokens=3), trajectory("b", 0.0, tokens=1))
    flat = group(trajectory("c", 0.1 + 0.2), trajectory("d", 0.3))
    values = step_advantages("reinforce_pp_baseline", [uneven, flat])
    # Centred 1/2 on 3 tokens, -1/2 on 1, 0 on 4: mean 1/8, sum of squares 1 - 8/64, over 7.
    std = ((1 - 1 / 8) / 7) ** 0.5
    expected = {"a": (0.5 - 0.125) / std, "b": (-0.5 - 0.125) / std, "c": 0.0, "d": 0.0}
    assert values == pytest.approx(expected, abs=1e-6)
    assert values["c"] == values["d"] == 0.0


def test_groups_with_the_same_prompt_do_not_mix():
    first, second = (
        group(trajectory("a", 1.0), trajectory("b", 0.0)),
        group(trajectory("c", 9.0), trajectory("d", 9.0)),
    )
    assert step_advantages("dr_grpo", [first, second]) == {"a": 0.5, "b": -0.5, "c": 0.0, "d": 0.0}
