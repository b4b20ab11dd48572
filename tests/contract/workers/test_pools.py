"""An instance with many workers: how many there are, what a call waits for, what one of them may use."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from strop import AgentOutput, RewardInput
from strop.errors import FunctionError
from strop.processes.limits import Limits
from strop.workers.instance import Instance
from strop.workers.size import PoolSize
from strop.workers.spec import WorkerSpec

Until = Callable[..., Awaitable[None]]
ProcessesOf = Callable[..., list[int]]
StartInstance = Callable[..., Awaitable[Instance]]
StartPool = Callable[..., Awaitable[Any]]

SOURCE = """
import asyncio, os
from strop import *
VERSION = 1
class F(AbstractRewardProcessor):
    kept = []
    async def process(self, input):
        what = input.ground_truth
        if what == "wait":
            while not os.path.exists("go"):
                await asyncio.sleep(0.01)
        if what == "leak":
            self.kept.append(b"x" * (10 * 2**20))
        if what == "where":
            return {"reward": {"reward_score": 1}, "tmp": os.environ["TMPDIR"],
                    "cores": len(os.sched_getaffinity(0))}
        return {"reward": {"reward_score": VERSION}, "pid": os.getpid()}
"""


def asked(ground_truth: str = "") -> RewardInput:
    return RewardInput(agent_output=AgentOutput(), ground_truth=ground_truth)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[StartInstance]:
    instances: list[Instance] = []
    async with aiohttp.ClientSession() as client:

        async def make(size: PoolSize, *, limits: Limits | None = None, job_id: str = "job") -> Instance:
            (tmp_path / "f.py").write_text(SOURCE)
            spec = WorkerSpec(
                name="f",
                classpath="f.py:F",
                root=tmp_path,
                timeout_s=60,
                concurrency=size.concurrency,
                limits=limits or Limits(),
            )
            instance = Instance(
                spec,
                job_id=job_id,
                client=client,
                on_line=lambda *_: None,
                grace_s=1,
                start_limit_s=60,
                size=size,
            )
            instances.append(instance)
            await instance.start()
            return instance

        yield make
        await asyncio.gather(*(instance.close() for instance in instances))


async def test_a_pool_grows_under_load_shrinks_when_idle_and_starts_again_from_nothing(
    start: StartInstance, until: Until, tmp_path: Path
) -> None:
    size = PoolSize(concurrency=1, smallest=0, largest=3, concurrency_threshold=1.0, idle_s=0.3)
    instance = await start(size)
    calls = [asyncio.create_task(instance.call(asked("wait"))) for _ in range(5)]
    await until(lambda: instance.reading().workers == 3, 30)
    assert (instance.reading().busy, instance.reading().queue) == (3, 2)
    (tmp_path / "go").touch()
    replies = await asyncio.gather(*calls)
    assert all(reply.ok for reply in replies)
    assert len({reply.output.model_extra["pid"] for reply in replies if reply.output is not None}) == 3
    await until(lambda: instance.reading().workers == 0, 30)
    assert instance.reading().cold_starts == 0
    assert (await instance.call(asked())).ok
    reading = instance.reading()
    assert (reading.cold_starts, reading.calls, reading.losses) == (1, 6, 0)


async def test_a_full_queue_answers_busy_at_once_and_the_queue_still_drains(
    start: StartInstance, until: Until, tmp_path: Path
) -> None:
    instance = await start(PoolSize(concurrency=2, queue=3))
    calls = [asyncio.create_task(instance.call(asked("wait"))) for _ in range(5)]
    await until(lambda: instance.reading().queue == 3)
    refused = await instance.call(asked())
    assert (refused.error_code, refused.attempts) == ("busy", 0)
    assert refused.error == "function 'f' is busy: its queue is full"
    (tmp_path / "go").touch()
    assert all(reply.ok for reply in await asyncio.gather(*calls))
    reading = instance.reading()
    assert reading.errors == {"busy": 1}
    assert reading.p50_s is not None
    assert reading.p95_s is not None
    assert reading.p50_s <= reading.p95_s


async def test_calls_go_to_the_worker_with_the_fewest(
    start: StartInstance, until: Until, tmp_path: Path
) -> None:
    instance = await start(PoolSize(concurrency=4, initial=2, smallest=2, largest=2))
    await until(lambda: instance.reading().workers == 2, 30)
    calls = [asyncio.create_task(instance.call(asked("wait"))) for _ in range(6)]
    await until(lambda: instance.reading().busy == 6)
    (tmp_path / "go").touch()
    pids = [reply.output.model_extra["pid"] for reply in await asyncio.gather(*calls) if reply.output]
    assert sorted(pids.count(pid) for pid in set(pids)) == [3, 3]


async def test_a_rolling_restart_loses_no_call_and_brings_the_new_code(
    start: StartInstance, until: Until, tmp_path: Path, processes_of: ProcessesOf
) -> None:
    job_id = f"job-{uuid.uuid4()}"
    size = PoolSize(concurrency=4, initial=2, smallest=2, largest=2)
    instance = await start(size, job_id=job_id)
    await until(lambda: instance.reading().workers == 2, 30)
    waiting = asyncio.create_task(instance.call(asked("wait")))
    await until(lambda: instance.reading().busy == 1)
    (tmp_path / "f.py").write_text(SOURCE.replace("VERSION = 1", "VERSION = 2"))
    scores: list[float] = []

    async def keep_calling() -> None:
        while True:
            reply = await instance.call(asked())
            assert reply.ok, reply.error
            scores.append(reply.output.reward.reward_score)

    calling = asyncio.create_task(keep_calling())
    await instance.restart()
    await until(lambda: scores[-1] == 2)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    assert scores == sorted(scores) or set(scores) == {1, 2}
    (tmp_path / "go").touch()
    old = await waiting
    assert old.ok
    await until(lambda: len(processes_of(job_id)) == 4)  # two reapers and two workers
    assert {(await instance.call(asked())).output.reward.reward_score for _ in range(4)} == {2}


async def test_code_that_does_not_start_leaves_the_old_workers_at_work(
    start: StartInstance, tmp_path: Path
) -> None:
    instance = await start(PoolSize(concurrency=4))
    (tmp_path / "f.py").write_text("broken(")
    with pytest.raises(FunctionError, match="'\\(' was never closed"):
        await instance.restart()
    assert (await instance.call(asked())).ok
    assert instance.reading().workers == 1


async def test_a_worker_that_leaks_is_replaced_before_its_limit_kills_calls(
    start: StartInstance, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strop.workers.process._YOUNG_S", 0.0)
    instance = await start(PoolSize(concurrency=4), limits=Limits(memory_size=256))
    while instance.reading().starts < 2:
        told = instance.reading().memory_bytes
        reply = await instance.call(asked("leak"))
        assert reply.ok, reply.error
        # The reaper looks five times a second: it is behind by this leak and the one before at most, which
        # is less than what lies between 90 % and the limit.
        await until(
            lambda told=told: instance.reading().memory_bytes != told or instance.reading().starts > 1
        )
    assert (await instance.call(asked())).ok
    assert instance.reading().losses == 0


async def test_each_worker_has_a_folder_for_temporary_files_that_goes_with_it(
    start: StartInstance, until: Until
) -> None:
    instance = await start(PoolSize(concurrency=4), limits=Limits(cpu=1))
    told = (await instance.call(asked("where"))).output
    assert told is not None
    extra = told.model_extra or {}
    assert os.path.isdir(extra["tmp"])  # noqa: ASYNC240 - a look
    assert extra["cores"] == 1
    await instance.close()
    assert not os.path.exists(extra["tmp"])  # noqa: ASYNC240 - a look


WAITS = """
import asyncio, os
class F(AbstractRewardProcessor):
    async def process(self, input):
        while not os.path.exists("go"):
            await asyncio.sleep(0.01)
        return {"reward": {"reward_score": 1}}
"""


async def test_a_run_that_finds_the_queue_full_asks_again_until_it_is_answered(
    start_pool: StartPool, until: Until, tmp_path: Path
) -> None:
    bench = await start_pool(WAITS, concurrency=1)
    pool = bench.pool._instances["f"]._pool
    pool.size = replace(pool.size, queue=1)
    calls = [asyncio.create_task(bench.reward()) for _ in range(6)]
    # One is in the worker and one waits; four are refused at once, and again whenever they ask.
    await until(lambda: bench.pool.readings()["f"].errors.get("busy", 0) >= 12)
    assert not any(call.done() for call in calls)
    (tmp_path / "go").touch()
    assert all(reply.ok for reply in await asyncio.gather(*calls))
    assert bench.pool.readings()["f"].errors.keys() == {"busy"}
