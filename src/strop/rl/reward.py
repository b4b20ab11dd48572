"""Groups -> the same groups with rewards: every reward function on every rollout, then the group rewards.

The reward is the weighted sum of what the functions gave. A score that a rollout function set itself
(`reward_score`) counts only where the job has neither reward nor group-reward functions; otherwise it is
there for them to read, and is not added. A call that fails is retried, unless it says `discard`; a rollout
that cannot be scored, or whose score or sum is beyond `MAX_REWARD`, becomes FAILED with the function's name,
never 0. Called by `rl.loop` and `rl.validation`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from strop.config.job import FunctionConfig, JobConfig
from strop.rl.interfaces import FunctionRunner
from strop.schema.function import (
    DISCARD,
    MAX_REWARD,
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

_SCALE = f"rewards go to {MAX_REWARD:g} above and below 0: scale them down, best to about 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPlan:
    """What scores a rollout. Each of the `group_functions` sees the survivors of a group together.

    Where a teacher judges, a rollout that nothing scores is as good as any: `required` is False then. `model`
    and `testing` are told to functions that score a group.
    """

    job_id: str
    functions: tuple[FunctionConfig, ...]
    group_functions: tuple[FunctionConfig, ...]
    max_attempts: int
    required: bool = True
    model: str = ""
    testing: bool = False


def reward_plan(config: JobConfig, job_id: str) -> RewardPlan:
    """The reward functions of a job, in its order."""
    return RewardPlan(
        job_id=job_id,
        functions=config.functions_of(FunctionType.REWARD),
        group_functions=config.functions_of(FunctionType.GROUP_REWARD),
        max_attempts=config.hyper_parameters.max_attempts,
        required=not config.distils,
        model=config.model.name,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unscored:
    """Why a function gave no score, after the last attempt."""

    error: str
    error_code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked(Generic[Answer]):
    """What came of asking a function, and how many calls that took."""

    answer: Answer | _Unscored
    calls: int


async def reward(groups: Sequence[Group], plan: RewardPlan, runner: FunctionRunner) -> tuple[Group, ...]:
    """Score every successful rollout of every group concurrently; failed ones pass through untouched."""

    async def whole(group: Group) -> Group:
        scored = await asyncio.gather(*(_score(one, group, plan, runner) for one in group.trajectories))
        group = replace(group, trajectories=tuple(scored))
        return await _score_group(group, plan, runner) if plan.group_functions else group

    return tuple(await asyncio.gather(*(whole(group) for group in groups)))


async def _score(
    trajectory: Trajectory, group: Group, plan: RewardPlan, runner: FunctionRunner
) -> Trajectory:
    """Ask every reward function about one rollout; all must answer."""
    if trajectory.status is TaskStatus.FAILED:
        return trajectory
    if not plan.functions:
        # With group functions alone, their parts are the whole reward.
        return replace(trajectory, reward=0.0) if plan.group_functions else _preset(trajectory, plan)
    started = time.perf_counter()
    more: dict[str, Any] = {"completion": _completion(trajectory)}
    payload = RewardInput(
        ground_truth=group.sample.ground_truth,
        request_metadata=_metadata(plan, trajectory.sample_id, trajectory.rollout_id, trajectory.attempt_id),
        agent_output=_agent_output(trajectory),
        **more,
    )

    async def ask(function: FunctionConfig) -> _Asked[Reward]:
        def check(output: FunctionOutput) -> Reward | str:
            if isinstance(output, RewardOutput):
                return _complaint(output.reward.reward_score, trajectory.sample_id) or output.reward
            return f"returned {type(output).__name__}, expected RewardOutput"

        return await _ask(lambda: runner.call(function.label, payload), check, function, plan.max_attempts)

    asked = await asyncio.gather(*(ask(function) for function in plan.functions))
    answers = [one.answer for one in asked]
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
        reward_calls=sum(one.calls for one in asked),
    )
    for answer in answers:
        if isinstance(answer, _Unscored):
            return _failed(trajectory, answer)
    total = sum(function.weight * scores[function.label].reward_score for function in plan.functions)
    return _within_range(replace(trajectory, reward=total), plan.functions)


async def _score_group(group: Group, plan: RewardPlan, runner: FunctionRunner) -> Group:
    """Add the group functions' parts to each survivor; if one of them fails, none has a reward."""
    members = group.survivors
    if not members:
        return group
    started = time.perf_counter()
    payload = _group_input(group, members, plan)

    async def ask(function: FunctionConfig) -> _Asked[list[Reward]]:
        def check(output: FunctionOutput) -> list[Reward] | str:
            if not isinstance(output, GroupRewardOutput):
                return f"returned {type(output).__name__}, expected GroupRewardOutput"
            found = len(output.reward.rewards)
            if found != len(members):
                return f"gave {found} rewards for {len(members)} outputs"
            wrong = (_complaint(one.reward_score, group.sample.sample_id) for one in output.reward.rewards)
            return next(filter(None, wrong), None) or output.reward.rewards

        return await _ask(lambda: runner.call(function.label, payload), check, function, plan.max_attempts)

    asked = await asyncio.gather(*(ask(function) for function in plan.group_functions))
    seconds, calls = time.perf_counter() - started, sum(one.calls for one in asked)
    scored: dict[str, Trajectory] = {}
    for position, member in enumerate(members):
        member = replace(member, reward_s=member.reward_s + seconds, reward_calls=member.reward_calls + calls)
        for function, one in zip(plan.group_functions, asked, strict=True):
            if not isinstance(one.answer, _Unscored):
                member = _with_group_part(member, function, one.answer[position])
        why = next((one.answer for one in asked if isinstance(one.answer, _Unscored)), None)
        summed = (*plan.functions, *plan.group_functions)
        scored[member.rollout_id] = _within_range(member, summed) if why is None else _failed(member, why)
    return replace(group, trajectories=tuple(scored.get(t.rollout_id, t) for t in group.trajectories))


def _group_input(group: Group, members: Sequence[Trajectory], plan: RewardPlan) -> GroupRewardInput:
    """Beside the declared fields the row, the completions' ends and the job's: Ark's functions read them."""
    sample = group.sample
    more: dict[str, Any] = {
        "sample": {
            "messages": sample.messages,
            "tools": sample.tools or [],
            "extra": sample.rollout_extra,
        },
        "completions": [_completion(member) for member in members],
        "context": {
            "foundation_model_name": plan.model,
            "foundation_model_version": "",
            "customization_type": "GRPO",
            "phase": "test" if plan.testing else "train",
        },
    }
    return GroupRewardInput(
        agent_outputs=[_agent_output(member) for member in members],
        request_metadata=_metadata(plan, sample.sample_id, group.group_id, "a1"),
        ground_truth=sample.ground_truth,
        **more,
    )


def _completion(trajectory: Trajectory) -> dict[str, Any]:
    """How the last turn ended, and the tokens of the whole rollout."""
    if not trajectory.turns:
        return {}
    last = trajectory.turns[-1]
    sampled, prompt = trajectory.num_sampled_tokens, len(last.prompt_ids)
    return {
        "finish_reason": last.finish_reason.value,
        "usage": {
            "completion_tokens": sampled,
            "prompt_tokens": prompt,
            "total_tokens": prompt + len(last.completion_ids),
        },
    }


async def _ask(
    call: Callable[[], Awaitable[FunctionReply]],
    check: Callable[[FunctionOutput], Answer | str],
    function: FunctionConfig,
    max_attempts: int,
) -> _Asked[Answer]:
    """Call until an answer passes its check; what remains of a failure names the function."""
    text, code, calls = "", "", 0
    while calls < max_attempts and code != DISCARD:
        reply = await call()
        calls += 1
        output = reply.output
        if output is not None and output.status is TaskStatus.FAILED:
            # GroupRewardOutput declares no error_code; one that was set comes as an extra field.
            said = reply.error_code or getattr(output, "error_code", None)
            text, code = reply.error or output.error or "returned FAILED", str(said or "failed")
        elif not reply.ok or output is None:
            text, code = reply.error or "no output", reply.error_code or "failed"
        else:
            answer = check(output)
            if not isinstance(answer, str):
                return _Asked(answer=answer, calls=calls)
            text, code = answer, "invalid_output"
    why = _Unscored(error=f"{function.type.value} function {function.label!r}: {text}", error_code=code)
    return _Asked(answer=why, calls=calls)


def _preset(trajectory: Trajectory, plan: RewardPlan) -> Trajectory:
    """With nothing to score it, a rollout must have scored itself, unless no reward is needed."""
    score = trajectory.preset_reward
    if score is not None and (wrong := _complaint(score, trajectory.sample_id)) is not None:
        error = f"rollout function: reward_score: {wrong}"
        return _failed(trajectory, _Unscored(error=error, error_code="invalid_output"))
    if score is not None or not plan.required:
        return replace(trajectory, reward=score)
    error = "no reward: the job has no reward function and the rollout function set no reward_score"
    return _failed(trajectory, _Unscored(error=error, error_code="no_reward"))


def _complaint(score: float, sample_id: str) -> str | None:
    """What is wrong with a score that no advantage could be made from."""
    if abs(score) <= MAX_REWARD:
        return None
    return f"scored sample {sample_id!r} with {score:g}; {_SCALE}"


def _within_range(trajectory: Trajectory, summed: Sequence[FunctionConfig]) -> Trajectory:
    """The rollout, or what it is when weights have made its reward too large."""
    reward = trajectory.reward or 0.0
    if abs(reward) <= MAX_REWARD:  # not so of NaN either, which opposite infinities add up to
        return trajectory
    parts = [
        f"{function.weight:g} x {trajectory.reward_parts[function.label]:g} of {function.label!r}"
        for function in summed
    ]
    error = f"the reward of sample {trajectory.sample_id!r} is {reward:g}, from {' + '.join(parts)}; {_SCALE}"
    return _failed(trajectory, _Unscored(error=error, error_code="invalid_output"))


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
