"""Rollouts: ids, retries, failures that stay data, and addresses that are always sealed."""

import asyncio

import pytest

from fakes.capture import FakeCapture
from fakes.functions import FakeFunctions, one_call_agent
from strop.rl import rollout as stage
from strop.rl.rollout import RolloutPlan, rollout
from strop.schema.function import AgentOutput, RolloutInput, RolloutOutput, TaskStatus
from strop.schema.reply import FunctionReply
from strop.schema.sample import Sample
from strop.schema.sampling import SamplingParams
from strop.schema.trajectory import FailedAttempt

PLAN = RolloutPlan(
    job_id="job",
    prefix="s7",
    n_rollouts=3,
    sampling=SamplingParams(max_tokens=16, temperature=0.8, seed=5),
    training=True,
    max_attempts=3,
    function="agent",
)


def sample(name: str = "q1", **fields) -> Sample:
    return Sample(sample_id=name, row=1, messages=[{"role": "user", "content": "2 + 2?"}], **fields)


async def run(capture, functions, samples=None, *, plan=PLAN, report=lambda done, total: None):
    return await rollout(samples or [sample()], plan, capture, functions, report)


async def test_each_rollout_gets_its_sample_its_address_and_its_ids():
    capture = FakeCapture()
    functions = FakeFunctions(agent=one_call_agent(capture))
    tools = [{"type": "function", "function": {"name": "add"}}]
    await run(capture, functions, [sample(tools=tools, ground_truth=4, rollout_extra={"unit": "m"})])
    payload: RolloutInput = functions.inputs("agent")[0]
    assert payload.messages == [{"role": "user", "content": "2 + 2?"}]
    assert payload.tools == tools
    assert payload.ground_truth == 4
    assert payload.rollout_extra == {"unit": "m"}
    assert payload.sampling_params == {"temperature": 0.8, "max_tokens": 16}
    assert payload.model_resource.base_url == "http://capture/rollouts/s7-0-q1-r0/a1/v1"
    assert payload.request_metadata is not None
    assert payload.request_metadata.model_dump() == {
        "job_id": "job",
        "sample_id": "q1",
        "rollout_id": "s7-0-q1-r0",
        "attempt_id": "a1",
    }
    assert capture.training["s7-0-q1-r0", "a1"] is True


async def test_groups_keep_the_order_of_samples_and_never_share_an_id():
    capture = FakeCapture()
    samples = [sample("a/b"), sample("a b"), sample("中文"), sample("x" * 200)]
    groups = await run(capture, FakeFunctions(agent=one_call_agent(capture)), samples)
    assert [group.group_id for group in groups] == ["s7-0-a-b", "s7-1-a-b", "s7-2-sample", f"s7-3-{'x' * 48}"]
    assert [group.sample for group in groups] == samples
    rollout_ids = [one.rollout_id for group in groups for one in group.trajectories]
    assert rollout_ids[:3] == ["s7-0-a-b-r0", "s7-0-a-b-r1", "s7-0-a-b-r2"]
    assert len(set(rollout_ids)) == 12


async def test_a_successful_rollout_carries_what_the_agent_gave():
    capture = FakeCapture(lambda sampling, messages: "four")
    agent = one_call_agent(
        capture, messages=[USER], rollout_metrics={"tools": 2.0}, reward_score=0.5, rollout_extra={"seen": 1}
    )
    (group,) = await run(capture, FakeFunctions(agent=agent))
    one = group.trajectories[0]
    assert (one.status, one.attempts, one.attempt_id) == (TaskStatus.SUCCESS, 1, "a1")
    assert one.messages == (USER,)
    assert one.rollout_metrics == {"tools": 2.0}
    assert one.preset_reward == 0.5
    assert one.reward is None
    assert one.rollout_extra == {"seen": 1}
    assert [bytes(turn.completion_ids) for turn in one.turns] == [b"four"]
    assert one.rollout_s > 0


USER = {"role": "user", "content": "2 + 2?"}


async def test_messages_and_extras_default_to_what_was_captured_and_given():
    capture = FakeCapture(lambda sampling, messages: "four")
    (group,) = await run(
        capture, FakeFunctions(agent=one_call_agent(capture)), [sample(rollout_extra={"unit": "m"})]
    )
    assert group.trajectories[0].messages == (USER, {"role": "assistant", "content": "four"})
    assert group.trajectories[0].rollout_extra == {"unit": "m"}


async def test_without_a_function_the_engine_answers_once():
    capture = FakeCapture(lambda sampling, messages: "four")
    plan = RolloutPlan(
        job_id="job",
        prefix="s1",
        n_rollouts=2,
        sampling=PLAN.sampling,
        training=True,
        max_attempts=1,
        function=None,
    )
    functions = FakeFunctions()
    (group,) = await run(capture, functions, plan=plan)
    assert [one.messages[-1]["content"] for one in group.trajectories] == ["four", "four"]
    assert functions.calls == []


def failing_until(capture: FakeCapture, attempt: str, member: str = "r1"):
    """An agent of which one member fails before a certain attempt."""
    agent = one_call_agent(capture)

    async def run(payload: RolloutInput) -> RolloutOutput:
        assert payload.request_metadata is not None
        ids = payload.request_metadata
        if ids.rollout_id.endswith(member) and ids.attempt_id < attempt:
            raise RuntimeError(f"broken at {ids.attempt_id}")
        return await agent(payload)

    return run


async def test_a_failed_attempt_is_tried_again_under_a_new_id():
    capture = FakeCapture()
    (group,) = await run(capture, FakeFunctions(agent=failing_until(capture, "a3")))
    assert [(one.status, one.attempts, one.attempt_id) for one in group.trajectories] == [
        (TaskStatus.SUCCESS, 1, "a1"),
        (TaskStatus.SUCCESS, 3, "a3"),
        (TaskStatus.SUCCESS, 1, "a1"),
    ]
    assert group.trajectories[1].error is None
    assert group.trajectories[1].failed_attempts == tuple(
        FailedAttempt(attempt_id=attempt, error=f"RuntimeError: broken at {attempt}", error_code="exception")
        for attempt in ("a1", "a2")
    )
    assert group.trajectories[0].failed_attempts == ()
    assert [key for key in capture.opened if key[0].endswith("r1")] == [
        ("s7-0-q1-r1", "a1"),
        ("s7-0-q1-r1", "a2"),
        ("s7-0-q1-r1", "a3"),
    ]


async def test_when_all_attempts_fail_the_error_stays_and_the_siblings_go_on():
    capture = FakeCapture()
    (group,) = await run(capture, FakeFunctions(agent=failing_until(capture, "a9")))
    failed = group.trajectories[1]
    assert (failed.status, failed.attempts) == (TaskStatus.FAILED, 3)
    assert (failed.error, failed.error_code) == ("RuntimeError: broken at a3", "exception")
    assert failed.reward is None
    assert [one.status for one in group.trajectories] == [
        TaskStatus.SUCCESS,
        TaskStatus.FAILED,
        TaskStatus.SUCCESS,
    ]
    assert capture.live == {}


@pytest.mark.parametrize(
    ("answer", "error", "code"),
    [
        (FunctionReply(error="took 2 s", error_code="timeout"), "took 2 s", "timeout"),
        (RolloutOutput(status=TaskStatus.FAILED, error="no tool", error_code="tool"), "no tool", "tool"),
        (RolloutOutput(status=TaskStatus.FAILED), "returned FAILED", "failed"),
    ],
)
async def test_a_failure_keeps_its_text_and_code(answer, error, code):
    capture = FakeCapture()
    (group,) = await run(capture, FakeFunctions(agent=lambda payload: answer))
    assert {(one.error, one.error_code) for one in group.trajectories} == {(error, code)}


async def test_success_without_a_captured_call_is_a_failure():
    capture = FakeCapture()
    silent = RolloutOutput(agent_output=AgentOutput(messages=[USER], reward_score=1.0))
    (group,) = await run(capture, FakeFunctions(agent=lambda payload: silent))
    one = group.trajectories[0]
    assert (one.status, one.error_code, one.attempts) == (TaskStatus.FAILED, "no_model_call", 3)
    assert one.error is not None
    assert "no captured model call" in one.error


async def test_calls_that_sampled_nothing_are_no_calls():
    capture = FakeCapture(lambda sampling, messages: "")
    (group,) = await run(capture, FakeFunctions(agent=one_call_agent(capture)))
    assert {one.error_code for one in group.trajectories} == {"no_model_call"}


async def test_an_exception_of_the_machinery_is_a_failed_attempt_that_keeps_its_turns():
    capture = FakeCapture(lambda sampling, messages: "four")
    agent = one_call_agent(capture)

    class Flaky(FakeFunctions):
        async def call(self, name, payload):
            await agent(payload)
            raise ConnectionError("worker gone")

    (group,) = await run(capture, Flaky())
    one = group.trajectories[0]
    assert (one.error, one.error_code) == ("ConnectionError: worker gone", "exception")
    assert len(one.turns) == 1
    assert capture.live == {}


async def test_every_attempt_samples_with_a_seed_of_its_own_that_repeats():
    def seeds(capture):
        return {key: sampling.seed for key, sampling in capture.sampling.items()}

    first, second = FakeCapture(), FakeCapture()
    for capture in (first, second):
        await run(capture, FakeFunctions(agent=failing_until(capture, "a2")))
    assert seeds(first) == seeds(second)
    assert len(set(seeds(first).values())) == 4
    assert all(0 <= seed < 2**63 for seed in seeds(first).values())
    assert {sampling.temperature for sampling in first.sampling.values()} == {0.8}


async def test_all_rollouts_of_a_step_run_at_once():
    capture = FakeCapture()
    agent = one_call_agent(capture)
    everyone = asyncio.Barrier(6)

    async def waits(payload):
        await everyone.wait()
        return await agent(payload)

    groups = await asyncio.wait_for(run(capture, FakeFunctions(agent=waits), [sample("a"), sample("b")]), 5)
    assert all(one.status is TaskStatus.SUCCESS for group in groups for one in group.trajectories)


async def test_no_more_than_the_limit_run_at_once(monkeypatch):
    monkeypatch.setattr(stage, "MAX_IN_FLIGHT", 2)
    capture = FakeCapture()
    agent = one_call_agent(capture)
    most = 0

    async def counts(payload):
        nonlocal most
        most = max(most, len(capture.live))
        await asyncio.sleep(0)
        return await agent(payload)

    await run(capture, FakeFunctions(agent=counts), [sample("a"), sample("b")])
    assert most == 2


async def test_cancelling_seals_every_open_attempt():
    capture = FakeCapture()
    started = asyncio.Event()

    async def hangs(payload):
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run(capture, FakeFunctions(agent=hangs)))
    await started.wait()
    assert len(capture.live) == 3
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert capture.live == {}


async def test_progress_counts_from_nothing_to_all():
    capture = FakeCapture()
    reports = []
    await run(
        capture,
        FakeFunctions(agent=one_call_agent(capture)),
        report=lambda done, total: reports.append((done, total)),
    )
    assert reports == [(0, 3), (1, 3), (2, 3), (3, 3)]
