"""Length and truncation, by hand: what they cost, and who leaves the loss."""

import math

import pytest

from strop.config.job import HyperParameters, TruncationPolicy
from strop.rl.advantage import step_advantages
from strop.rl.batch import build_batch, repeat
from strop.rl.overlong import (
    LengthPlan,
    length_metrics,
    length_plan,
    masked_rollouts,
    overlong_penalty,
    shape_rewards,
)
from strop.schema.function import TaskStatus
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import Group, Trajectory, Turn


def turn(length: int, finish_reason: FinishReason = FinishReason.STOP, index: int = 0) -> Turn:
    return Turn(
        index=index,
        prompt_ids=(1, 2),
        completion_ids=tuple(range(3, 3 + length)),
        behaviour_logprobs=(-1.0,) * length,
        policy_versions=(0,) * length,
        temperature=1.0,
        finish_reason=finish_reason,
        messages=(),
        response={"role": "assistant", "content": ""},
        latency_s=0.0,
    )


def rollout(number: int, *turns: Turn, reward: float | None = 1.0, group: str = "g") -> Trajectory:
    return Trajectory(
        rollout_id=f"{group}-r{number}",
        attempt_id="a1",
        group_id=group,
        sample_id="s",
        attempts=1,
        status=TaskStatus.SUCCESS if reward is not None else TaskStatus.FAILED,
        turns=turns,
        reward=reward,
    )


def group(*members: Trajectory, name: str = "g") -> Group:
    return Group(group_id=name, sample=Sample(sample_id="s", row=1, messages=[]), trajectories=members)


def plan(buffer: int = 20, factor: float = 1.0, truncation: str = "keep") -> LengthPlan:
    return LengthPlan(limit=100, buffer=buffer, factor=factor, truncation=TruncationPolicy(truncation))


CUT = FinishReason.LENGTH


@pytest.mark.parametrize(
    ("length", "penalty"), [(1, 0.0), (80, 0.0), (81, -0.05), (90, -0.5), (100, -1.0), (150, -1.0)]
)
def test_the_penalty_grows_from_the_buffers_start_to_the_limit(length, penalty):
    assert overlong_penalty(length, limit=100, buffer=20) == pytest.approx(penalty, abs=1e-12)
    assert overlong_penalty(length, limit=100, buffer=20, factor=0.5) == pytest.approx(penalty / 2, abs=1e-12)
    assert overlong_penalty(length, limit=100, buffer=0) == 0.0


def test_rewards_lose_what_the_longest_answer_costs_and_keep_their_score():
    members = [
        rollout(0, turn(80)),
        rollout(1, turn(90), turn(5, index=1), reward=0.25),
        rollout(2, turn(100, CUT)),
        rollout(3, turn(95), reward=None),
    ]
    (shaped,) = shape_rewards([group(*members)], plan())
    assert [one.reward for one in shaped.trajectories] == pytest.approx([1.0, -0.25, 0.0, None])
    assert [one.overlong_penalty for one in shaped.trajectories] == [0.0, -0.5, -1.0, 0.0]
    assert [one.score for one in shaped.trajectories] == pytest.approx([1.0, 0.25, 1.0, None])


@pytest.mark.parametrize(
    ("truncation", "buffer", "rewards"),
    [
        ("keep", 0, [1.0, 1.0]),
        ("penalise", 0, [1.0, -1.0]),
        ("mask", 0, [1.0, 1.0]),
        ("keep", 20, [0.0, -1.0]),
        ("mask", 20, [0.0, 1.0]),
    ],
)
def test_truncation_is_the_engines_word_not_a_matter_of_length(truncation, buffer, rewards):
    """A short answer cut by a full context, beside one that ended by itself in the middle of the buffer."""
    ended, cut = rollout(0, turn(90)), rollout(1, turn(12, CUT))
    (shaped,) = shape_rewards([group(ended, cut)], plan(buffer=buffer, factor=2.0, truncation=truncation))
    assert [one.reward for one in shaped.trajectories] == rewards


def test_only_cut_off_survivors_are_masked():
    members = [rollout(0, turn(5)), rollout(1, turn(5, CUT)), rollout(2, turn(5, CUT), reward=None)]
    assert masked_rollouts([group(*members)], plan(truncation="mask")) == {"g-r1"}
    assert masked_rollouts([group(*members)], plan(truncation="keep")) == frozenset()


def batch_of(groups, masked=frozenset()):
    advantages = step_advantages("dr_grpo", groups)
    return build_batch(1, groups, advantages, mini_batch_size=8, masked=masked)


def test_a_masked_rollout_leaves_numerator_and_denominators_but_not_its_groups_baseline():
    members = [rollout(0, turn(4)), rollout(1, turn(6, CUT), reward=0.0), rollout(2, turn(2), reward=0.5)]
    (mini,) = batch_of([group(*members)], masked={"g-r1"}).mini_batches
    assert (mini.num_rollouts, mini.num_loss_tokens) == (2, 4 + 2)
    advantages = {one.rollout_id: one.advantage for one in mini.packs[0].sequences}
    assert advantages == {"g-r0": 0.5, "g-r2": 0.0}  # the mean of 1, 0 and 0.5


def test_a_group_left_with_one_unmasked_rollout_is_still_trained_on():
    members = [rollout(0, turn(4)), rollout(1, turn(6, CUT), reward=0.0)]
    (mini,) = batch_of([group(*members)], masked={"g-r1"}).mini_batches
    assert mini.num_rollouts == 1
    assert mini.packs[0].sequences[0].advantage == 0.5


def test_a_group_masked_whole_gives_no_pack_and_a_batch_of_none_no_update():
    first = group(rollout(0, turn(4, CUT)), rollout(1, turn(6, CUT), reward=0.0))
    second = group(rollout(0, turn(4), group="h"), rollout(1, turn(6), reward=0.0, group="h"), name="h")
    masked = masked_rollouts([first, second], plan(truncation="mask"))
    (mini,) = batch_of([first, second], masked).mini_batches
    assert [pack.sequences[0].group_id for pack in mini.packs] == ["h"]
    assert batch_of([first], masked).mini_batches == ()


def test_several_passes_repeat_the_updates_in_order():
    groups = [
        group(rollout(0, turn(4), group=name), rollout(1, turn(2), reward=0.0, group=name), name=name)
        for name in "gh"
    ]
    batch = build_batch(1, groups, step_advantages("grpo", groups), mini_batch_size=1)
    first, second = batch.mini_batches
    assert repeat(batch, 2).mini_batches == (first, second, first, second)
    assert repeat(batch, 1) == batch


def test_what_length_cost_is_measured_where_it_costs_anything():
    members = [rollout(0, turn(90)), rollout(1, turn(12, CUT))]
    groups = [group(*members)]
    shaped = shape_rewards(groups, plan())
    assert length_metrics(shaped, frozenset(), plan()) == {"critic/overlong_penalty/mean": -0.75}
    masking = plan(buffer=0, truncation="mask")
    masked = masked_rollouts(groups, masking)
    assert length_metrics(groups, masked, masking) == {"trajectory/masked_ratio": 0.5}
    assert length_metrics(groups, frozenset(), plan(buffer=0)) == {}
    assert math.isnan(length_metrics([], frozenset(), plan())["critic/overlong_penalty/mean"])


@pytest.mark.parametrize(
    ("given", "buffer"),
    [
        ({}, 0),
        ({"algorithm": "dapo"}, 20),
        ({"algorithm": "dapo", "overlong_buffer_len": 0}, 0),
        ({"overlong_buffer_len": 7}, 7),
    ],
)
def test_the_buffer_is_the_algorithms_unless_set(given, buffer):
    hyper = HyperParameters.model_validate({"max_tokens": 100, **given})
    assert (length_plan(hyper).limit, length_plan(hyper).buffer) == (100, buffer)
