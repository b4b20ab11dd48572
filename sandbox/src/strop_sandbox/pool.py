"""Boxes that stand ready -> one for each request: starting takes longer than a small program runs."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

from strop_sandbox.box import Box
from strop_sandbox.isolation import Isolation

_log = logging.getLogger(__name__)


class Pool:
    """Keeps `size` unused boxes; each is given out once and then thrown away.

    Concurrency:
        One event loop.
    """

    def __init__(self, isolation: Isolation, size: int) -> None:
        self.isolation, self.size = isolation, size
        self.num_started = self.num_cold = 0
        self._ready: deque[Box] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_coming = 0
        self._closed = False

    @property
    def num_ready(self) -> int:
        return len(self._ready)

    async def open(self) -> None:
        """Fill the pool.

        Raises:
            BoxError: a box did not come up.
        """
        try:
            _raise_first(
                await asyncio.gather(*(self._start_ready() for _ in range(self.size)), return_exceptions=True)
            )
        except BaseException:
            await self.close()
            raise

    async def _start_ready(self) -> None:
        """What has started is the pool's at once, so that nothing is lost where another one fails."""
        self._ready.append(await self._start())

    async def _start(self) -> Box:
        self.num_started += 1
        return await Box.start(self.isolation)

    @asynccontextmanager
    async def box(self) -> AsyncGenerator[Box]:
        """A fresh box; it is cleared away in the background when the block ends."""
        taken = await self._take()
        try:
            yield taken
        finally:
            self._background(taken.close())

    async def _take(self) -> Box:
        while self._ready:
            box = self._ready.popleft()
            self._refill()
            if box.is_alive:
                return box
            self._background(box.close())
        self.num_cold += 1
        self._refill()
        return await self._start()

    def _refill(self) -> None:
        """Also in place of those that once could not be started."""
        while not self._closed and len(self._ready) + self._num_coming < self.size:
            self._num_coming += 1
            self._background(self._add())

    async def _add(self) -> None:
        try:
            box = await self._start()
        finally:
            self._num_coming -= 1
        if self._closed:
            await box.close()
        else:
            self._ready.append(box)

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a box could not be made ready or cleared away", exc_info=task.exception())

    async def close(self) -> None:
        """End all boxes, also those in use."""
        self._closed = True
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        ready = list(self._ready)
        self._ready.clear()
        _raise_first(await asyncio.gather(*(box.close() for box in ready), return_exceptions=True))


def _raise_first(results: Iterable[object]) -> None:
    """Once all have ended: what the first that failed met."""
    for one in results:
        if isinstance(one, BaseException):
            raise one
