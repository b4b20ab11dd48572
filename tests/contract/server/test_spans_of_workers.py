"""A decorated function in a real worker -> spans in a real server, with no configuration."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fakes.server import eventually
from strop.cli.span_sending import span_environment
from strop.config.job import FunctionConfig
from strop.schema.function import AgentOutput, RequestMetadata, RewardInput
from strop.schema.job import Job, JobStatus
from strop.schema.span import Span, SpanKind, SpanStatus
from strop.service.server_file import written_down
from strop.store.jobs import create_job
from strop.tracing.ids import root_span_id_of, trace_id_of
from strop.workers.functions import FunctionPool

JOB = "ft-traced"

SOURCE = """
from strop import *
from {root} import observe_processor, observe_tool

@observe_tool(name="response_scorer")
def score(*, messages, secret):
    return 0.5

class Score(AbstractRewardProcessor):
    @observe_processor
    {kind} process(self, input):
        import os
        value = score(messages=[], secret=os.environ["SECRET"])
        return RewardOutput(reward=Reward(reward_score=value))
"""


def payload(number: int = 0) -> RewardInput:
    ids = RequestMetadata(job_id=JOB, sample_id="row", rollout_id=f"s1-0-r{number}", attempt_id="a1")
    return RewardInput(agent_output=AgentOutput(), request_metadata=ids)


def pool(root: Path, source: str, tracing, env=None, on_spans=None) -> FunctionPool:
    (root / "f.py").write_text(source)
    config = FunctionConfig.model_validate(
        {
            "type": "reward",
            "name": "score",
            "fcmodel": {"classpath": "f.py:Score"},
            "runtime": {"env": {"SECRET": "hunter2-hunter2", **(env or {})}},
        }
    )
    return FunctionPool(
        [config], root=root, job_id=JOB, on_line=lambda *_: None, tracing=tracing, on_spans=on_spans
    )


@pytest.fixture
def traced_server(server, monkeypatch):
    """The server of this home, with the job."""
    monkeypatch.setenv("STROP_HOME", str(server.home))
    with server.database.write() as session:
        now = datetime.now(UTC)
        job = Job(job_id=JOB, name="j", status=JobStatus.PENDING, model="m", config={}, created_at=now)
        if not server.http.get(f"/fine-tunes/{JOB}").is_success:
            create_job(session, job)
    with written_down(server.home, server.url):
        yield server


async def spans_of(server, rollout_id, count):
    def there():
        found = server.get(f"/fine-tunes/{JOB}/spans", rollout_id=rollout_id)["spans"]
        return found if len(found) >= count else None

    return await asyncio.to_thread(eventually, there, within_s=30)


@pytest.mark.parametrize(
    ("number", "root", "kind"),
    [
        (1, "strop.tracing", "def"),
        (2, "strop.tracing", "async def"),
        (3, "dashscope.finetune.reinforcement.component.observability", "def"),
    ],
)
async def test_an_observed_function_shows_up_on_the_server_by_itself(
    traced_server, tmp_path, number, root, kind
):
    source = SOURCE.format(root=root, kind=kind)
    async with pool(tmp_path, source, span_environment(JOB)) as workers:
        reply = await workers.call("score", payload(number))
        assert reply.ok, reply.error
        found = await spans_of(traced_server, f"s1-0-r{number}", 2)
    spans = {span["name"]: span for span in found}
    reward, tool = spans["invoke_reward Score"], spans["execute_tool response_scorer"]
    ids = (JOB, f"s1-0-r{number}", "a1")
    assert reward["trace_id"] == tool["trace_id"] == trace_id_of(*ids)
    assert reward["parent_span_id"] == root_span_id_of(*ids)
    assert tool["parent_span_id"] == reward["span_id"]
    assert (reward["sample_id"], reward["service"], reward["kind"]) == ("row", "score", "REWARD")
    assert tool["attributes"]["bailian.agentic_rl.job_id"] == JOB
    assert "hunter2" not in str(found)


async def test_a_function_whose_environment_says_so_is_not_traced(traced_server, tmp_path):
    source = SOURCE.format(root="strop.tracing", kind="def")
    async with pool(tmp_path, source, span_environment(JOB), {"ENABLE_TRAJECTORY": "false"}) as quiet:
        assert (await quiet.call("score", payload(8))).ok
        async with pool(tmp_path, source, span_environment(JOB)) as loud:
            assert (await loud.call("score", payload(9))).ok
            await spans_of(traced_server, "s1-0-r9", 2)
    assert traced_server.get(f"/fine-tunes/{JOB}/spans", rollout_id="s1-0-r8")["spans"] == []


async def test_a_dead_receiver_fails_no_call_and_costs_none_its_time(tmp_path, monkeypatch):
    """The address takes connections and never answers: the worst that a receiver can do."""
    held: list[asyncio.Task[None]] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(asyncio.current_task())
        await reader.read()
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    silent = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    tracing = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{port}/v1/traces",
        "OTEL_BSP_SCHEDULE_DELAY": "10",
        "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "30",
    }
    source = SOURCE.format(root="strop.tracing", kind="def")
    try:
        async with pool(tmp_path, source, tracing) as workers:
            await workers.call("score", payload())
            began = time.perf_counter()
            replies = [await workers.call("score", payload(n)) for n in range(50)]
            took_s = time.perf_counter() - began
    finally:
        silent.close()
        await asyncio.gather(*held, return_exceptions=True)
    assert held
    assert all(reply.ok for reply in replies)
    assert took_s < 15  # one export alone would wait for 30


PLAIN = """
from strop import *

class Score(AbstractRewardProcessor):
    def process(self, input):
        if input.request_metadata.rollout_id == "s1-0-r7":
            raise ValueError("no seven")
        return RewardOutput(reward=Reward(reward_score=0.25))
"""
UNDER_ANOTHER = SOURCE.replace("    @observe_processor\n", "    @other\n    @observe_processor\n").replace(
    "class Score",
    "import functools\ndef other(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a)\n"
    "    return g\n\nclass Score",
)


async def called(root: Path, source: str, numbers: list[int], env=None) -> list[Span]:
    """What the caller of a function notes of its calls."""
    noted: list[Span] = []
    workers = pool(root, source, {}, env, on_spans=noted.extend)
    async with workers:
        for number in numbers:
            await workers.call("score", payload(number))
    return noted


async def test_a_call_of_a_function_without_decorators_is_noted_by_its_caller(tmp_path):
    good, bad = await called(tmp_path, PLAIN, [6, 7])
    ids = (JOB, "s1-0-r6", "a1")
    assert (good.name, good.kind, good.status) == ("invoke_reward Score", SpanKind.REWARD, SpanStatus.OK)
    assert (good.trace_id, good.parent_span_id) == (trace_id_of(*ids), root_span_id_of(*ids))
    assert (good.rollout_id, good.sample_id, good.attempt_id) == ("s1-0-r6", "row", "a1")
    assert good.attributes["agentic_rl.result.reward_score"] == 0.25
    assert good.attributes["agentic_rl.result.latency_s"] == good.duration_ns / 1e9 > 0
    assert (bad.status, bad.attributes["error.type"]) == (SpanStatus.ERROR, "exception")
    assert bad.message is not None
    assert "ValueError: no seven" in bad.message


@pytest.mark.parametrize(
    ("source", "env"),
    [
        (SOURCE.format(root="strop.tracing", kind="def"), {}),
        (UNDER_ANOTHER.format(root="strop.tracing", kind="def"), {}),
        (SOURCE.format(root="dashscope.finetune.reinforcement.component.observability", kind="def"), {}),
        (PLAIN, {"ENABLE_TRAJECTORY": "false"}),
    ],
    ids=["decorated", "below another decorator", "by dashscope's name", "switched off"],
)
async def test_no_call_is_noted_twice_nor_where_it_is_not_wanted(tmp_path, source, env):
    assert await called(tmp_path, source, [1], env) == []


def test_without_a_server_workers_send_nothing():
    assert span_environment(JOB) == {}
