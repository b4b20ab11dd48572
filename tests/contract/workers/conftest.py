"""Real workers around user code that a test writes as text."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from strop.config.job import FunctionConfig
from strop.schema.function import AgentOutput, RewardInput
from strop.schema.reply import FunctionReply
from strop.workers.functions import FunctionPool


@dataclass
class Bench:
    """A pool with one or more functions, and what they have written."""

    pool: FunctionPool
    job_id: str
    lines: list[tuple[str, str, str]] = field(default_factory=list)

    async def reward(self, ground_truth: Any = None, *, name: str = "f", **extra: Any) -> FunctionReply:
        payload = RewardInput(agent_output=AgentOutput(), ground_truth=ground_truth, **extra)
        return await self.pool.call(name, payload)

    async def line(self, text: str) -> tuple[str, str, str]:
        """Wait for a log line that has `text` in it."""
        await until(lambda: any(text in line[2] for line in self.lines))
        return next(line for line in self.lines if text in line[2])


StartPool = Callable[..., Awaitable[Bench]]


async def until(condition: Callable[[], bool], limit_s: float = 10.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - the condition is another process's
            await asyncio.sleep(0.005)


@pytest.fixture(name="until")
def _until() -> Callable[..., Awaitable[None]]:
    return until


@pytest.fixture
def processes_of() -> Callable[..., list[int]]:
    """Pids of the live processes that have a value in their environment, as descendants have it, too."""

    def find(value: str, name: str = "STROP_JOB_ID") -> list[int]:
        mark = f"{name}={value}".encode()
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    return find


@pytest.fixture
async def start_pool(tmp_path: Path) -> AsyncIterator[StartPool]:
    benches: list[Bench] = []

    async def start(
        source: str,
        *,
        class_name: str = "F",
        func_type: str = "reward",
        timeout: float = 20.0,  # noqa: ASYNC109 - the function's, not this one's
        grace_s: float = 0.7,
        start_limit_s: float = 30.0,
        job_id: str | None = None,
        **runtime: Any,
    ) -> Bench:
        (tmp_path / "functions").mkdir(exist_ok=True)
        (tmp_path / "functions" / "f.py").write_text("from strop import *\n" + source)
        config = FunctionConfig.model_validate(
            {
                "type": func_type,
                "name": "f",
                "timeout": timeout,
                "fcmodel": {"classpath": f"functions/f.py:{class_name}"},
                "runtime": runtime,
            }
        )
        lines: list[tuple[str, str, str]] = []
        job_id = job_id or f"job-{uuid.uuid4()}"
        pool = FunctionPool(
            [config],
            root=tmp_path,
            job_id=job_id,
            on_line=lambda *line: lines.append(line),
            grace_s=grace_s,
            start_limit_s=start_limit_s,
        )
        bench = Bench(pool, job_id, lines)
        benches.append(bench)
        await pool.start()
        return bench

    yield start
    for bench in benches:
        await bench.pool.close()
