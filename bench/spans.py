"""What tracing costs a rollout, side by side in one process; and how many spans a second the server stores.

    python -m bench.spans [--spans 30000] [--rollouts 300]

The rollout asks a model three times through a traced OpenAI client and calls two traced tools; model and
receiver are processes of their own. Traced and untraced rollouts take turns. A model that answers at once
shows the cost, one that takes 50 ms a call what a rollout feels of it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

JOB = "ft-spans"
BATCH = 512
"""Spans an exporter sends at once."""
MODEL_MS = (0, 50)
TEXT = "Take both numbers, add them up and say what comes out of it. " * 16
"""About a kilobyte a message."""


def serve_model(port_file: Path, delay_ms: int) -> None:
    """A chat model that says one thing, and a receiver that throws spans away."""
    from fastapi import FastAPI

    app = FastAPI()
    message = {"role": "assistant", "content": TEXT}
    reply = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }  # fmt: skip

    @app.post("/v1/chat/completions")
    async def chat() -> dict[str, Any]:
        await asyncio.sleep(delay_ms / 1000)
        return reply

    @app.post("/v1/traces")
    async def traces() -> dict[str, Any]:
        return {}

    _serve(app, port_file)


def serve_store(port_file: Path, home: Path) -> None:
    """The server's own receiver over a store of its own."""
    from strop.cli.checking import PipelineFlow
    from strop.doors.app import create_app
    from strop.schema.job import Job, JobStatus
    from strop.service.settings import Settings
    from strop.store.jobs import create_job

    app = create_app(Settings(home=home, supervise=False), PipelineFlow())
    job = Job(
        job_id=JOB, name="spans", status=JobStatus.PENDING, model="m", config={}, created_at=datetime.now(UTC)
    )
    with app.state.services.database.write() as session:
        create_job(session, job)
    _serve(app, port_file)


def _serve(app: Any, port_file: Path) -> None:
    import uvicorn

    from strop.workers.listening import listen

    listener = listen(0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, ws="none"))
    port_file.with_suffix(".tmp").write_text(str(listener.getsockname()[1]))
    port_file.with_suffix(".tmp").rename(port_file)
    server.run(sockets=[listener])


@contextmanager
def process(folder: Path, *arguments: str) -> Generator[tuple[str, subprocess.Popen[bytes]]]:
    """This file as another process; gives its address."""
    port_file = folder / f"port-{arguments[0]}-{len(list(folder.iterdir()))}"
    command = [sys.executable, "-m", "bench.spans", "--as", arguments[0], str(port_file), *arguments[1:]]
    with subprocess.Popen(command) as child:
        try:
            while not port_file.exists():
                if child.poll() is not None:
                    raise SystemExit(f"{arguments[0]} ended with status {child.returncode}")
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port_file.read_text()}", child
        finally:
            child.terminate()


def overhead(num_rollouts: int, delay_ms: int, folder: Path) -> str:
    with process(folder, "model", str(delay_ms)) as (url, _):
        os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = f"{url}/v1/traces"
        took = asyncio.run(_take_turns(num_rollouts, url))
    plain, traced = (statistics.median(took[name]) * 1000 for name in ("false", "true"))
    return (
        f"rollout with a model of {delay_ms} ms a call: {plain:.2f} ms plain, {traced:.2f} ms traced "
        f"({traced / plain:.3f} times, {(traced - plain) / 6:.2f} ms a span), medians of {num_rollouts} each"
    )


async def _take_turns(num_rollouts: int, url: str) -> dict[str, list[float]]:
    from openai import AsyncOpenAI

    from strop import AbstractRolloutProcessor, AgentOutput, RolloutInput, RolloutOutput
    from strop.tracing import observe_processor, observe_tool, trace_client

    @observe_tool(name="add")
    def add(*, a: int, b: int) -> int:
        return a + b

    class Agent(AbstractRolloutProcessor):
        client = trace_client(AsyncOpenAI(base_url=f"{url}/v1", api_key="none"))
        plain = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")

        @observe_processor
        async def process(self, input: RolloutInput) -> RolloutOutput:
            traced = os.environ["ENABLE_TRAJECTORY"] == "true"
            messages: list[Any] = list(input.messages)
            for _ in range(3):
                client = self.client if traced else self.plain
                reply = await client.chat.completions.create(model="m", messages=messages)
                messages.append({"role": "assistant", "content": reply.choices[0].message.content})
                if len(messages) < 6:
                    messages.append({"role": "user", "content": f"{add(a=1, b=2)}. {TEXT}"})
            return RolloutOutput(agent_output=AgentOutput(messages=messages))

    asked = RolloutInput.model_validate(
        {
            "messages": [{"role": "user", "content": TEXT}],
            "model_resource": {"model_name": "m", "base_url": url, "api_key": "none"},
            "request_metadata": {
                "job_id": JOB,
                "sample_id": "s1-0",
                "rollout_id": "s1-0-r0",
                "attempt_id": "a1",
            },
        }
    )
    agent, took = Agent(), {"true": list[float](), "false": list[float]()}
    for number in range(2 * num_rollouts + 20):
        mode = ("true", "false")[number % 2]
        os.environ["ENABLE_TRAJECTORY"] = mode
        began = time.perf_counter()
        await agent.process(asked)
        if number >= 20:
            took[mode].append(time.perf_counter() - began)
    return took


def ingest(num_spans: int, folder: Path) -> str:
    """Two senders at once, as two workers would."""
    from concurrent.futures import ThreadPoolExecutor

    from strop.service.secret import open_signer
    from strop.service.span_access import job_token

    home = folder / "home"
    with process(folder, "store", str(home)) as (url, child):
        token = job_token(open_signer(home), JOB)
        bodies = [_body(first) for first in range(1, num_spans, BATCH)]
        headers = {"authorization": f"Bearer {token}", "content-type": "application/x-protobuf"}
        with httpx.Client(headers=headers, timeout=60, limits=httpx.Limits(max_connections=2)) as client:

            def send(body: bytes) -> None:
                client.post(f"{url}/v1/traces", content=body).raise_for_status()

            for body in bodies[:4]:
                send(body)
            before = _memory_mib(child.pid)
            began = time.perf_counter()
            with ThreadPoolExecutor(2) as senders:
                list(senders.map(send, bodies[4:]))
            seconds = time.perf_counter() - began
        after = _memory_mib(child.pid)
    rate = (len(bodies) - 4) * BATCH / seconds
    return (
        f"{rate:.0f} spans/s stored over HTTP ({len(bodies[0]) // BATCH} bytes a span, batches of {BATCH}); "
        f"memory of the server {before:.0f} MiB, {after:.0f} MiB at the end"
    )


def _body(first: int) -> bytes:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    scoped = request.resource_spans.add().scope_spans.add()
    for index in range(first, first + BATCH):
        one = scoped.spans.add()
        one.trace_id, one.span_id = (index // 8).to_bytes(16, "big"), index.to_bytes(8, "big")
        one.name = "chat m"
        one.start_time_unix_nano = 1_700_000_000_000_000_000 + index * 1_000_000
        one.end_time_unix_nano = one.start_time_unix_nano + 250_000_000
        one.status.code = 1
        said = '[{"role":"assistant","parts":[{"type":"text","content":"four"}]}]'
        for key, value in {
            "gen_ai.span.kind": "LLM", "bailian.agentic_rl.rollout_id": f"s1-0-r{index // 8}",
            "bailian.agentic_rl.attempt_id": "a1", "gen_ai.request.model": "m",
            "gen_ai.response.id": f"chatcmpl-{index}", "gen_ai.output.messages": said,
        }.items():  # fmt: skip
            pair = one.attributes.add()
            pair.key, pair.value.string_value = key, value
        for key in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"):
            pair = one.attributes.add()
            pair.key, pair.value.int_value = key, 64
    return request.SerializeToString()


def _memory_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spans")
    parser.add_argument("--spans", type=int, default=30_000)
    parser.add_argument("--rollouts", type=int, default=300)
    parser.add_argument("--as", dest="role", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.role is not None:
        role, port_file, value = asked.role
        if role == "model":
            serve_model(Path(port_file), int(value))
        else:
            serve_store(Path(port_file), Path(value))
        return
    with tempfile.TemporaryDirectory(prefix="strop-spans-") as made:
        folder = Path(made)
        print(ingest(asked.spans, folder), flush=True)
        for delay_ms in MODEL_MS:
            print(overhead(asked.rollouts if not delay_ms else 40, delay_ms, folder), flush=True)


if __name__ == "__main__":
    main()
