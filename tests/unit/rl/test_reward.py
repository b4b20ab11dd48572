"""Rewards: weighted sums by hand, retries, and failures that never become 0."""

from dataclasses import replace

import pytest

from fakes.functions import FakeFunctions, equal_shares, last_digit
from strop.config.job import FunctionConfig, FunctionModel
from strop.rl.reward import RewardPlan, reward
from strop.schema.function import (
    FunctionType,
    GroupReward,
    GroupRewardOutput,
    Reward,
    RewardInput,
    RewardOutput,
    RolloutOutput,
    TaskStatus,
)
from strop.schema.reply import FunctionReply
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import Group, Trajectory, Turn


def function(name: str, weight: float = 1.0, kind: FunctionType = FunctionType.REWARD) -> FunctionConfig:
    return FunctionConfig(type=kind, name=name, weight=weight, fcmodel=FunctionModel(classpath="a.B"))


def plan(
    *functions: FunctionConfig,
    group: FunctionConfig | None = None,
    groups: tuple[FunctionConfig, ...] = (),
    max_attempts: int = 3,
) -> RewardPlan:
    return RewardPlan(
        job_id="job",
        functions=functions,
        group_functions=(group,) if group else groups,
        max_attempts=max_attempts,
        model="tiny",
    )


SHARE = function("share", 0.5, FunctionType.GROUP_REWARD)


def member(
    number: int, answer: str = "1", *, failed: bool = False, preset: float | None = None
) -> Trajectory:
    turn = Turn(
        index=0,
        prompt_ids=(1,),
        completion_ids=(2,),
        behaviour_logprobs=(-1.0,),
        policy_versions=(0,),
        temperature=1.0,
        finish_reason=FinishReason.STOP,
        messages=(),
        response={},
        latency_s=0.0,
    )
    return Trajectory(
        rollout_id=f"r{number}",
        attempt_id="a2",
        group_id="g",
        sample_id="q",
        attempts=2,
        status=TaskStatus.FAILED if failed else TaskStatus.SUCCESS,
        error="broken" if failed else None,
        turns=(turn,),
        messages=({"role": "assistant", "content": answer},),
        rollout_extra={"unit": "m"},
        rollout_metrics={"tools": 1.0},
        preset_reward=preset,
    )


def group(*members: Trajectory) -> Group:
    sample = Sample(sample_id="q", row=1, messages=[], ground_truth="4")
    return Group(group_id="g", sample=sample, trajectories=members)


async def score(
    rewards: RewardPlan, functions: FakeFunctions, *members: Trajectory
) -> tuple[Trajectory, ...]:
    (scored,) = await reward([group(*members)], rewards, functions)
    return scored.trajectories


def gives(value: float, **metrics: float):
    return lambda payload: RewardOutput(reward=Reward(reward_score=value, reward_metrics=metrics or None))


async def test_the_reward_is_the_weighted_sum_of_the_functions():
    functions = FakeFunctions(right=gives(0.5, digits=2.0), style=gives(0.2))
    (one,) = await score(plan(function("right", 0.75), function("style", 0.25)), functions, member(0))
    assert one.reward == pytest.approx(0.75 * 0.5 + 0.25 * 0.2)
    assert one.reward_parts == {"right": 0.5, "style": 0.2}
    assert one.reward_metrics == {"right": {"digits": 2.0}}
    assert one.status is TaskStatus.SUCCESS
    assert one.reward_s > 0


async def test_a_reward_function_sees_the_whole_rollout():
    functions = FakeFunctions(right=last_digit)
    await score(plan(function("right")), functions, member(0, preset=0.25))
    payload: RewardInput = functions.inputs("right")[0]
    assert payload.ground_truth == "4"
    assert payload.agent_output.model_dump() == {
        "messages": [{"role": "assistant", "content": "1"}],
        "rollout_extra": {"unit": "m"},
        "rollout_metrics": {"tools": 1.0},
        "reward_score": 0.25,
    }
    assert payload.request_metadata is not None
    assert payload.request_metadata.model_dump() == {
        "job_id": "job",
        "sample_id": "q",
        "rollout_id": "r0",
        "attempt_id": "a2",
    }


async def test_a_preset_reward_counts_only_without_reward_functions():
    (alone,) = await score(plan(), FakeFunctions(), member(0, preset=0.25))
    (beside,) = await score(plan(function("right")), FakeFunctions(right=gives(1.0)), member(0, preset=0.25))
    (grouped,) = await score(plan(group=SHARE), FakeFunctions(share=equal_shares), member(0, preset=0.25))
    assert (alone.reward, beside.reward, grouped.reward) == (0.25, 1.0, 0.5)
    assert alone.reward_parts == {}


async def test_without_functions_and_preset_there_is_no_reward():
    (one,) = await score(plan(), FakeFunctions(), member(0))
    assert (one.status, one.reward, one.error_code) == (TaskStatus.FAILED, None, "no_reward")
    assert one.error is not None
    assert "reward_score" in one.error


@pytest.mark.parametrize(
    ("answer", "text", "code"),
    [
        (FunctionReply(error="took 2 s", error_code="timeout"), "took 2 s", "timeout"),
        (
            RewardOutput(reward=Reward(reward_score=0.0), status=TaskStatus.FAILED, error="no judge"),
            "no judge",
            "failed",
        ),
        (RolloutOutput(), "returned RolloutOutput, expected RewardOutput", "invalid_output"),
    ],
)
async def test_a_function_that_fails_fails_the_rollout_by_name_and_never_gives_zero(answer, text, code):
    functions = FakeFunctions(right=lambda payload: answer, style=gives(1.0))
    (one,) = await score(plan(function("right"), function("style")), functions, member(0))
    assert (one.status, one.reward, one.error_code) == (TaskStatus.FAILED, None, code)
    assert one.error == f"reward function 'right': {text}"
    assert one.reward_parts == {"style": 1.0}
    assert len(functions.inputs("right")) == 3
    assert len(functions.inputs("style")) == 1


async def test_a_call_that_fails_once_is_tried_again():
    answers = iter([RuntimeError("busy"), gives(1.0)(None)])

    def flaky(payload):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    (one,) = await score(plan(function("right")), FakeFunctions(right=flaky), member(0))
    assert (one.status, one.reward, one.error) == (TaskStatus.SUCCESS, 1.0, None)


async def test_one_of_eight_fails_and_seven_are_scored():
    def picky(payload: RewardInput):
        assert payload.request_metadata is not None
        if payload.request_metadata.rollout_id == "r3":
            raise ValueError("cannot parse")
        return last_digit(payload)

    scored = await score(plan(function("right")), FakeFunctions(right=picky), *(member(i) for i in range(8)))
    assert [one.rollout_id for one in scored if one.scored] == ["r0", "r1", "r2", "r4", "r5", "r6", "r7"]
    assert scored[3].error == "reward function 'right': ValueError: cannot parse"


async def test_failed_rollouts_are_asked_about_nowhere():
    functions = FakeFunctions(right=last_digit, share=equal_shares)
    scored = await score(
        plan(function("right"), group=SHARE), functions, member(0), member(1, failed=True), member(2, "3")
    )
    assert len(functions.inputs("right")) == 2
    assert len(functions.inputs("share")[0].agent_outputs) == 2
    assert scored[1].error == "broken"
    # 1 + 0.5 / 2 and 3 + 0.5 / 2
    assert [one.reward for one in scored] == [1.25, None, 3.25]
    assert scored[0].reward_parts == {"right": 1.0, "share": 0.5}


async def test_a_group_function_of_the_wrong_length_fails_its_members_with_both_counts():
    short = GroupRewardOutput(reward=GroupReward(rewards=[Reward(reward_score=1.0)]))
    functions = FakeFunctions(right=gives(1.0), share=lambda payload: short)
    scored = await score(plan(function("right"), group=SHARE), functions, member(0), member(1), member(2))
    assert {one.error for one in scored} == {"group_reward function 'share': gave 1 rewards for 3 outputs"}
    assert {(one.status, one.reward) for one in scored} == {(TaskStatus.FAILED, None)}
    assert len(functions.inputs("share")) == 3


async def test_a_group_without_survivors_asks_no_group_function():
    functions = FakeFunctions(share=equal_shares)
    await score(plan(group=SHARE), functions, member(0, failed=True))
    assert functions.calls == []


async def test_many_group_functions_are_added_up_and_one_that_fails_fails_the_group():
    ranked, broken = function("ranked", 2.0, FunctionType.GROUP_REWARD), function("broken", kind=SHARE.type)

    def ranks(payload):
        return GroupRewardOutput(
            reward=GroupReward(
                rewards=[Reward(reward_score=float(i)) for i in range(len(payload.agent_outputs))]
            )
        )

    functions = FakeFunctions(right=last_digit, share=equal_shares, ranked=ranks)
    scored = await score(plan(function("right"), groups=(SHARE, ranked)), functions, member(0), member(1))
    # 1 + 0.5 / 2 + 2 * 0 and 1 + 0.5 / 2 + 2 * 1
    assert [one.reward for one in scored] == [1.25, 3.25]
    assert scored[1].reward_parts == {"right": 1.0, "share": 0.5, "ranked": 1.0}
    functions = FakeFunctions(share=equal_shares)
    scored = await score(plan(groups=(SHARE, broken)), functions, member(0), member(1))
    assert {one.error_code for one in scored} == {"exception"}
    assert all("group_reward function 'broken'" in (one.error or "") for one in scored)
    assert scored[0].reward_parts == {"share": 0.5}


async def test_what_says_discard_is_not_asked_again_and_calls_are_counted():
    def tired(payload):
        return RewardOutput(
            reward=Reward(reward_score=0), status=TaskStatus.FAILED, error="no answer", error_code="discard"
        )

    functions = FakeFunctions(right=tired, style=gives(1.0))
    (one,) = await score(plan(function("right"), function("style")), functions, member(0))
    assert (one.error_code, one.error) == ("discard", "reward function 'right': no answer")
    assert len(functions.inputs("right")) == 1
    assert one.reward_calls == 2


async def test_a_group_function_is_told_the_row_the_ends_and_the_phase():
    functions = FakeFunctions(share=equal_shares)
    await reward([group(member(0), member(1))], replace(plan(group=SHARE), testing=True), functions)
    told = functions.inputs("share")[0].model_extra
    assert told["sample"] == {"messages": [], "tools": [], "extra": {}}
    assert told["context"] == {
        "foundation_model_name": "tiny",
        "foundation_model_version": "",
        "customization_type": "GRPO",
        "phase": "test",
    }
    usage = {"completion_tokens": 1, "prompt_tokens": 1, "total_tokens": 2}
    assert told["completions"] == [{"finish_reason": "stop", "usage": usage}] * 2


@pytest.mark.parametrize("value", [1e200, -1.7e308, 1.1e15])
async def test_a_score_that_no_loss_could_hold_fails_the_rollout_by_function_sample_value_and_mend(value):
    functions = FakeFunctions(right=gives(value))
    (one,) = await score(plan(function("right")), functions, member(0))
    assert (one.status, one.reward, one.error_code) == (TaskStatus.FAILED, None, "invalid_output")
    assert one.error == (
        f"reward function 'right': scored sample 'q' with {value:g}; rewards go to 1e+15 above and below 0: "
        "scale them down, best to about 1"
    )
    assert len(functions.inputs("right")) == 3


async def test_the_largest_score_that_is_allowed_counts():
    (one,) = await score(plan(function("right")), FakeFunctions(right=gives(-1e15)), member(0))
    assert (one.status, one.reward) == (TaskStatus.SUCCESS, -1e15)


@pytest.mark.parametrize(
    ("weights", "scores", "told"),
    [
        ((1e6, 1.0), (1e10, 0.5), "is 1e+16, from 1e+06 x 1e+10 of 'a' + 1 x 0.5 of 'b'"),
        ((1e6, 1e6), (-9e8, -9e8), "is -1.8e+15, from 1e+06 x -9e+08 of 'a' + 1e+06 x -9e+08 of 'b'"),
    ],
)
async def test_weights_that_make_a_sum_too_large_fail_the_rollout_with_every_part(weights, scores, told):
    one, two = (function(name, weight) for name, weight in zip("ab", weights, strict=True))
    (scored,) = await score(plan(one, two), FakeFunctions(a=gives(scores[0]), b=gives(scores[1])), member(0))
    assert (scored.status, scored.error_code) == (TaskStatus.FAILED, "invalid_output")
    assert scored.error is not None
    assert f"the reward of sample 'q' {told}; rewards go to 1e+15" in scored.error


async def test_group_scores_have_the_same_bounds_alone_and_in_the_sum():
    def shares(payload):
        scores = [1.0, 2e15] if len(payload.agent_outputs) == 2 else [1.0, 2.0, 9e14]
        return GroupRewardOutput(reward=GroupReward(rewards=[Reward(reward_score=value) for value in scores]))

    functions = FakeFunctions(share=shares, right=gives(9e14))
    scored = await score(plan(group=SHARE), functions, member(0), member(1))
    assert {one.status for one in scored} == {TaskStatus.FAILED}
    assert "group_reward function 'share': scored sample 'q' with 2e+15" in (scored[0].error or "")
    # 9e14 + 0.5 * 9e14 is too much for the third alone.
    scored = await score(plan(function("right"), group=SHARE), functions, member(0), member(1), member(2))
    assert [one.reward for one in scored] == [9e14 + 0.5, 9e14 + 1, None]
    assert "from 1 x 9e+14 of 'right' + 0.5 x 9e+14 of 'share'" in (scored[2].error or "")


async def test_a_rollout_that_scores_itself_has_the_same_bounds():
    (one,) = await score(plan(), FakeFunctions(), member(0, preset=-1e200))
    assert (one.status, one.reward, one.error_code) == (TaskStatus.FAILED, None, "invalid_output")
    assert one.error is not None
    assert one.error.startswith("rollout function: reward_score: scored sample 'q' with -1e+200; rewards go")
