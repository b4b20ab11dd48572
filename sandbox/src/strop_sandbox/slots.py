"""Runs that ask at the same time -> turns: one limit over all, and nobody waits behind another's hundred.

Who asks under the same key (the cases of one submission) queues behind each other; the keys take turns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager

from strop_sandbox.errors import ThrottledError


class Slots:
    """`num_slots` turns at once; more than `max_waiting` waiting requests are refused.

    Concurrency:
        One event loop.
    """

    def __init__(self, num_slots: int, max_waiting: int) -> None:
        self.num_slots, self.max_waiting = num_slots, max_waiting
        self.num_running = 0
        self.num_admitted = 0
        self._queues: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._keys: deque[Hashable] = deque()

    @property
    def num_waiting(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    @asynccontextmanager
    async def admitted(self) -> AsyncGenerator[None]:
        """Count one request, from its arrival to its answer.

        Raises:
            ThrottledError: as many are under way or waiting as this server takes.
        """
        if self.num_admitted >= self.num_slots + self.max_waiting:
            raise ThrottledError(f"{self.num_admitted} requests run or wait; try again later")
        self.num_admitted += 1
        try:
            yield
        finally:
            self.num_admitted -= 1

    @asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncGenerator[None]:
        """Wait for a slot, and hold it."""
        if self.num_running < self.num_slots:
            self.num_running += 1
        else:
            await self._wait(key)
        try:
            yield
        finally:
            self._next()

    async def _wait(self, key: Hashable) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if key not in self._queues:
            self._queues[key] = deque()
            self._keys.append(key)
        self._queues[key].append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self._next()  # the slot had just been given
            else:
                self._forget(key, waiting)
            raise

    def _forget(self, key: Hashable, waiting: asyncio.Future[None]) -> None:
        queue = self._queues.get(key)
        if queue is None or waiting not in queue:
            return
        queue.remove(waiting)
        if not queue:
            del self._queues[key]
            self._keys.remove(key)

    def _next(self) -> None:
        """Hand the slot on, to the key whose turn it is."""
        while self._keys:
            key = self._keys.popleft()
            queue = self._queues[key]
            waiting = queue.popleft()
            if queue:
                self._keys.append(key)
            else:
                del self._queues[key]
            if not waiting.done():
                waiting.set_result(None)
                return
        self.num_running -= 1
