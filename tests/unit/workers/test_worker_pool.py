"""When another worker is brought: workers that are not processes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from strop.workers.gauges import Gauges
from strop.workers.process import WorkerProcess
from strop.workers.size import PoolSize
from strop.workers.worker_pool import WorkerPool


class Ready:
    """A worker that starts at once."""

    def __init__(self) -> None:
        self.exited, self.idle = asyncio.Event(), asyncio.Event()
        self.num_in_flight = self.memory_bytes = 0
        self.draining = False

    async def start(self, **_: Any) -> None:
        pass

    async def kill(self) -> None:
        self.exited.set()

    def take(self) -> None:
        self.num_in_flight += 1

    def release(self) -> None:
        self.num_in_flight -= 1
        self.idle.set()


async def pool_of(size: PoolSize) -> WorkerPool:
    pool = WorkerPool(
        "f",
        lambda: cast("WorkerProcess", Ready()),
        size,
        Gauges(),
        start_limit_s=5,
        drain_s=1,
        memory_size=100,
    )
    await pool.start()
    return pool


async def settled(pool: WorkerPool) -> int:
    """How many workers there are once those that start have started."""
    async with asyncio.timeout(5):
        while pool.num_starting:  # noqa: ASYNC110
            await asyncio.sleep(0)  # a start ends without telling
    return len(pool.workers)


async def test_memory_alone_above_its_threshold_brings_another_worker_and_shared_out_no_third() -> None:
    pool = await pool_of(PoolSize(concurrency=10, smallest=1, largest=3, memory_threshold=0.5))
    worker = await pool.take()
    assert await settled(pool) == 1
    worker.memory_bytes = 40 * 2**20  # 0.4 of 100 MiB
    await pool.take()
    assert await settled(pool) == 1
    worker.memory_bytes = 60 * 2**20
    await pool.take()
    assert await settled(pool) == 2
    assert pool.load().memory_share == 0.3
    await pool.take()
    assert await settled(pool) == 2
    await pool.close()


async def test_calls_alone_above_their_threshold_bring_another_worker() -> None:
    pool = await pool_of(PoolSize(concurrency=10, smallest=1, largest=3, concurrency_threshold=0.5))
    for num_calls, num_workers in ((5, 1), (6, 2), (10, 2), (11, 3), (16, 3)):
        while pool.load().num_busy < num_calls:
            await pool.take()
        assert await settled(pool) == num_workers
    await pool.close()
