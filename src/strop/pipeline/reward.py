"""Groups -> the same groups with rewards: every reward function on every rollout, then the group reward.

The reward is the weighted sum of what the functions gave. A score that a rollout function set itself
(`reward_score`) counts only where the job has neither reward nor group-reward functions; otherwise it is
there for them to read, and is not added. A call that fails is retried; a rollout that cannot be scored
becomes FAILED with the function's name, never 0. Called by `pipeline.loop` and `pipeline.validation`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from strop.pipeline.ports import FunctionRunner
from strop.schema.config import FunctionConfig, JobConfig
from strop.schema.function import (
    AgentOutput,
    FunctionOutput,
    FunctionType,
    GroupRewardInput,
    GroupRewardOutput,
    RequestMetadata,
    Reward,
    RewardInput,
    RewardOutput,
    TaskStatus,
)
from strop.schema.reply import FunctionReply
from strop.schema.trajectory import Group, Trajectory

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPlan:
    """What scores a rollout. `group_function` sees the survivors of a group together.

    Where a teacher judges, a rollout that nothing scores is as good as any: `required` is False then.
    """

    job_id: str
    functions: tuple[FunctionConfig, ...]
    group_function: FunctionConfig | None
    max_attempts: int
    required: bool = True


def reward_plan(config: JobConfig, job_id: str) -> RewardPlan:
    """The reward functions of a job, in its order."""
    group_functions = config.functions_of(FunctionType.GROUP_REWARD)
    return RewardPlan(
        job_id=job_id,
        functions=config.functions_of(FunctionType.REWARD),
        group_function=group_functions[0] if group_functions else None,
        max_attempts=config.hyper_parameters.max_attempts,
        required=not config.distils,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unscored:
    """Why a function gave no score, after the last attempt."""

    error: str
    error_code: str


async def reward(groups: Sequence[Group], plan: RewardPlan, runner: FunctionRunner) -> tuple[Group, ...]:
    """Score every successful rollout of every group concurrently; failed ones pass through untouched."""

    async def whole(group: Group) -> Group:
        scored = await asyncio.gather(*(_score(one, group, plan, runner) for one in group.trajectories))
        group = replace(group, trajectories=tuple(scored))
        return await _score_group(group, plan.group_function, plan, runner) if plan.group_function else group

    return tuple(await asyncio.gather(*(whole(group) for group in groups)))


async def _score(
    trajectory: Trajectory, group: Group, plan: RewardPlan, runner: FunctionRunner
) -> Trajectory:
    """Ask every reward function about one rollout; all must answer."""
    if trajectory.status is TaskStatus.FAILED:
        return trajectory
    if not plan.functions:
        # With a group function alone, its part is the whole reward.
        return _preset(trajectory, plan) if plan.group_function is None else replace(trajectory, reward=0.0)
    started = time.perf_counter()
    payload = RewardInput(
        ground_truth=group.sample.ground_truth,
        request_metadata=_metadata(plan, trajectory.sample_id, trajectory.rollout_id, trajectory.attempt_id),
        agent_output=_agent_output(trajectory),
    )

    async def ask(function: FunctionConfig) -> Reward | _Unscored:
        def check(output: FunctionOutput) -> Reward | str:
            if isinstance(output, RewardOutput):
                return output.reward
            return f"returned {type(output).__name__}, expected RewardOutput"

        return await _ask(lambda: runner.call(function.label, payload), check, function, plan.max_attempts)

    answers = await asyncio.gather(*(ask(function) for function in plan.functions))
    scores = {
        function.label: answer
        for function, answer in zip(plan.functions, answers, strict=True)
        if isinstance(answer, Reward)
    }
    trajectory = replace(
        trajectory,
        reward_parts={label: answer.reward_score for label, answer in scores.items()},
        reward_metrics={
            label: dict(answer.reward_metrics) for label, answer in scores.items() if answer.reward_metrics
        },
        reward_s=time.perf_counter() - started,
    )
    for answer in answers:
        if isinstance(answer, _Unscored):
            return _failed(trajectory, answer)
    total = sum(function.weight * scores[function.label].reward_score for function in plan.functions)
    return replace(trajectory, reward=total)


async def _score_group(
    group: Group, function: FunctionConfig, plan: RewardPlan, runner: FunctionRunner
) -> Group:
    """Add the group function's part to each survivor; if it fails, none of them has a reward."""
    members = group.survivors
    if not members:
        return group
    started = time.perf_counter()
    payload = GroupRewardInput(
        agent_outputs=[_agent_output(member) for member in members],
        request_metadata=_metadata(plan, group.sample.sample_id, group.group_id, "a1"),
        ground_truth=group.sample.ground_truth,
    )

    def check(output: FunctionOutput) -> list[Reward] | str:
        if not isinstance(output, GroupRewardOutput):
            return f"returned {type(output).__name__}, expected GroupRewardOutput"
        found = len(output.reward.rewards)
        return (
            output.reward.rewards
            if found == len(members)
            else f"gave {found} rewards for {len(members)} outputs"
        )

    answer = await _ask(lambda: runner.call(function.label, payload), check, function, plan.max_attempts)
    seconds = time.perf_counter() - started
    scored: dict[str, Trajectory] = {}
    for position, member in enumerate(members):
        member = replace(member, reward_s=member.reward_s + seconds)
        scored[member.rollout_id] = (
            _failed(member, answer)
            if isinstance(answer, _Unscored)
            else _with_group_part(member, function, answer[position])
        )
    return replace(group, trajectories=tuple(scored.get(t.rollout_id, t) for t in group.trajectories))


async def _ask(
    call: Callable[[], Awaitable[FunctionReply]],
    check: Callable[[FunctionOutput], Answer | str],
    function: FunctionConfig,
    max_attempts: int,
) -> Answer | _Unscored:
    """Call until an answer passes its check; what remains of a failure names the function."""
    text, code = "", ""
    for _ in range(max_attempts):
        reply = await call()
        if not reply.ok or reply.output is None:
            text, code = reply.error or "no output", reply.error_code or "failed"
            continue
        if reply.output.status is TaskStatus.FAILED:
            text, code = reply.output.error or "returned FAILED", "failed"
            continue
        answer = check(reply.output)
        if not isinstance(answer, str):
            return answer
        text, code = answer, "invalid_output"
    return _Unscored(error=f"{function.type.value} function {function.label!r}: {text}", error_code=code)


def _preset(trajectory: Trajectory, plan: RewardPlan) -> Trajectory:
    """With nothing to score it, a rollout must have scored itself, unless no reward is needed."""
    if trajectory.preset_reward is not None or not plan.required:
        return replace(trajectory, reward=trajectory.preset_reward)
    error = "no reward: the job has no reward function and the rollout function set no reward_score"
    return _failed(trajectory, _Unscored(error=error, error_code="no_reward"))


def _with_group_part(trajectory: Trajectory, function: FunctionConfig, part: Reward) -> Trajectory:
    metrics = {function.label: dict(part.reward_metrics)} if part.reward_metrics else {}
    return replace(
        trajectory,
        reward=(trajectory.reward or 0.0) + function.weight * part.reward_score,
        reward_parts={**trajectory.reward_parts, function.label: part.reward_score},
        reward_metrics={**trajectory.reward_metrics, **metrics},
    )


def _failed(trajectory: Trajectory, why: _Unscored) -> Trajectory:
    return replace(
        trajectory, status=TaskStatus.FAILED, reward=None, error=why.error, error_code=why.error_code
    )


def _metadata(plan: RewardPlan, sample_id: str, rollout_id: str, attempt_id: str) -> RequestMetadata:
    return RequestMetadata(
        job_id=plan.job_id, sample_id=sample_id, rollout_id=rollout_id, attempt_id=attempt_id
    )


def _agent_output(trajectory: Trajectory) -> AgentOutput:
    return AgentOutput(
        messages=list(trajectory.messages),
        rollout_extra=trajectory.rollout_extra,
        rollout_metrics=trajectory.rollout_metrics,
        reward_score=trajectory.preset_reward,
    )
