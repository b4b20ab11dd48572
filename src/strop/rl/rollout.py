"""Samples -> groups of trajectories: runs the agent `n_rollouts` times on every sample, all at once.

Here failures become data: whatever goes wrong in an attempt is retried, then kept on its trajectory, and the
siblings go on. Called by `rl.loop` for training and by `rl.validation`; scores nothing.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from strop.config.job import JobConfig
from strop.rl.interfaces import FunctionRunner, RolloutGateway
from strop.schema.function import (
    AgentOutput,
    FunctionType,
    RequestMetadata,
    RolloutInput,
    RolloutOutput,
    TaskStatus,
)
from strop.schema.sample import Sample
from strop.schema.sampling import SamplingParams, seed_of
from strop.schema.trajectory import FailedAttempt, Group, Trajectory, Turn

MAX_IN_FLIGHT = 512
"""Rollouts at work at once. Beyond it they would only wait in the engine while their time limits run."""

Report = Callable[[int, int], None]
"""Told (done, total) whenever a piece of work is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """How the rollouts of one step are run.

    `prefix` makes their ids unique in the run: `s12` for training step 12, `v12` for the validation after it.
    `function` names the rollout function; None: a single turn, sampled by the engine from the messages.
    """

    job_id: str
    prefix: str
    n_rollouts: int
    sampling: SamplingParams
    training: bool
    max_attempts: int
    function: str | None


def rollout_plan(config: JobConfig, job_id: str) -> RolloutPlan:
    """The training rollouts of a job; each step sets its own `prefix`."""
    hyper = config.hyper_parameters
    functions = config.functions_of(FunctionType.ROLLOUT)
    return RolloutPlan(
        job_id=job_id,
        prefix="",
        n_rollouts=hyper.n_rollouts,
        sampling=SamplingParams(
            max_tokens=hyper.longest_answer,
            temperature=hyper.temperature,
            seed=hyper.seed,
        ),
        training=True,
        max_attempts=hyper.max_attempts,
        function=functions[0].label if functions else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """What one try left: an output, or the error that ended it; the turns either way."""

    turns: tuple[Turn, ...]
    output: AgentOutput | None = None
    error: str | None = None
    error_code: str | None = None


async def rollout(
    samples: Sequence[Sample],
    plan: RolloutPlan,
    capture: RolloutGateway,
    functions: FunctionRunner,
    report: Report,
) -> tuple[Group, ...]:
    """Run every sample's rollouts concurrently and group them by sample, in the order given.

    Raises:
        Nothing for what a rollout did; cancelling it seals every open attempt.
    """
    total = len(samples) * plan.n_rollouts
    done = 0
    gate = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def one(sample: Sample, group_id: str, member: int) -> Trajectory:
        nonlocal done
        async with gate:
            trajectory = await _run(sample, group_id, f"{group_id}-r{member}", plan, capture, functions)
        done += 1
        report(done, total)
        return trajectory

    async def group(index: int, sample: Sample) -> Group:
        group_id = f"{plan.prefix}-{index}-{_slug(sample.sample_id)}"
        members = [one(sample, group_id, member) for member in range(plan.n_rollouts)]
        return Group(group_id=group_id, sample=sample, trajectories=tuple(await asyncio.gather(*members)))

    report(0, total)
    return tuple(await asyncio.gather(*(group(index, sample) for index, sample in enumerate(samples))))


async def _run(
    sample: Sample,
    group_id: str,
    rollout_id: str,
    plan: RolloutPlan,
    capture: RolloutGateway,
    functions: FunctionRunner,
) -> Trajectory:
    """Try until an attempt succeeds or `max_attempts` are spent; the last one becomes the trajectory, which
    keeps the errors of those before."""
    started = time.perf_counter()
    number = 0
    failed: list[FailedAttempt] = []
    while True:
        number += 1
        attempt = await _attempt(sample, rollout_id, f"a{number}", plan, capture, functions)
        if attempt.error is None or number == plan.max_attempts:
            break
        code = attempt.error_code or "failed"
        failed.append(FailedAttempt(attempt_id=f"a{number}", error=attempt.error, error_code=code))
    output = attempt.output or AgentOutput()
    messages = output.messages if output.messages is not None else _captured_messages(sample, attempt.turns)
    extra = output.rollout_extra if output.rollout_extra is not None else sample.rollout_extra
    return Trajectory(
        rollout_id=rollout_id,
        attempt_id=f"a{number}",
        group_id=group_id,
        sample_id=sample.sample_id,
        attempts=number,
        status=TaskStatus.SUCCESS if attempt.error is None else TaskStatus.FAILED,
        turns=attempt.turns,
        messages=tuple(messages),
        rollout_extra=extra,
        rollout_metrics=dict(output.rollout_metrics or {}),
        preset_reward=output.reward_score,
        error=attempt.error,
        error_code=attempt.error_code,
        failed_attempts=tuple(failed),
        rollout_s=time.perf_counter() - started,
    )


async def _attempt(
    sample: Sample,
    rollout_id: str,
    attempt_id: str,
    plan: RolloutPlan,
    capture: RolloutGateway,
    functions: FunctionRunner,
) -> _Attempt:
    """One try with an address of its own; sealed before anyone looks at its turns."""
    outcome = _Attempt(turns=())
    turns: tuple[Turn, ...] = ()
    sampling = replace(plan.sampling, seed=_attempt_seed(plan.sampling.seed, rollout_id, attempt_id))
    try:
        resource = capture.open(rollout_id, attempt_id, sampling=sampling, training=plan.training)
        try:
            if plan.function is None:
                await capture.chat(rollout_id, attempt_id, sample.messages, sample.tools)
            else:
                payload = RolloutInput(
                    messages=sample.messages,
                    tools=sample.tools,
                    ground_truth=sample.ground_truth,
                    rollout_extra=sample.rollout_extra,
                    sampling_params={"temperature": sampling.temperature, "max_tokens": sampling.max_tokens},
                    model_resource=resource,
                    request_metadata=RequestMetadata(
                        job_id=plan.job_id,
                        sample_id=sample.sample_id,
                        rollout_id=rollout_id,
                        attempt_id=attempt_id,
                    ),
                )
                outcome = await _call(plan.function, payload, functions)
        finally:
            turns = capture.close(rollout_id, attempt_id)
    except Exception as error:  # noqa: BLE001  the boundary where a rollout's failure becomes data
        text = f"{type(error).__name__}: {error}"
        return replace(outcome, turns=turns, error=text, error_code="exception")
    outcome = replace(outcome, turns=turns)
    if outcome.error is None and not any(turn.completion_ids for turn in turns):
        return replace(
            outcome,
            error="the rollout made no captured model call; use model_resource.base_url as it was given",
            error_code="no_model_call",
        )
    return outcome


async def _call(function: str, payload: RolloutInput, functions: FunctionRunner) -> _Attempt:
    reply = await functions.call(function, payload)
    if not reply.ok:
        return _Attempt(turns=(), error=reply.error or "no output", error_code=reply.error_code or "failed")
    if not isinstance(reply.output, RolloutOutput):
        found = type(reply.output).__name__
        error = f"rollout function {function!r} returned {found}, expected RolloutOutput"
        return _Attempt(turns=(), error=error, error_code="invalid_output")
    if reply.output.status is TaskStatus.FAILED:
        code = reply.output.error_code or "failed"
        return _Attempt(turns=(), error=reply.output.error or "returned FAILED", error_code=code)
    return _Attempt(turns=(), output=reply.output.agent_output)


def _captured_messages(sample: Sample, turns: tuple[Turn, ...]) -> list[dict[str, Any]]:
    """The conversation as the gateway saw it last; the bare prompt when it saw nothing."""
    if not turns:
        return list(sample.messages)
    return [*turns[-1].messages, turns[-1].response]


def _slug(sample_id: str) -> str:
    """The part of a sample's id that may stand in a URL; the index beside it keeps ids apart."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", sample_id)[:48].strip("-.") or "sample"


def _attempt_seed(seed: int | None, rollout_id: str, attempt_id: str) -> int | None:
    """A seed of its own for every attempt, the same whenever the step is run again."""
    return None if seed is None else seed_of(f"{seed}/{rollout_id}/{attempt_id}")
