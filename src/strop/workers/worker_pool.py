"""How much there is to do -> the workers that do it: started, lent to calls in order, replaced, stopped.

Knows nothing of HTTP or of what a call is: it lends places in workers. Used by `workers.instance` alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from strop.errors import FunctionError
from strop.locales import msg
from strop.workers.gauges import Gauges
from strop.workers.process import WorkerProcess
from strop.workers.size import Load, PoolSize

_MAX_STARTS = 3
"""Starts in a row that may fail before calls are refused at once."""
_COOL_DOWN_S = 30.0
"""After that, the first call past this time tries a start again."""
_MIN_RESTART_LIMIT_S = 30.0
_RESTART_FACTOR = 10.0
_MAX_BACKOFF_S = 5.0
_STARTS_AT_ONCE = 2
"""An import is mostly computing; more at once would only keep the calls' processors busy."""


class WorkerPool:
    """The workers of one instance.

    Concurrency:
        Belongs to one event loop.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], WorkerProcess],
        size: PoolSize,
        gauges: Gauges,
        *,
        start_limit_s: float,
        drain_s: float,
        memory_size: int | None = None,
    ) -> None:
        """`drain_s`: seconds that a worker has, once it gets no more calls, for those it still works on."""
        self._name = name
        self._make = make
        self.size = size
        self._gauges = gauges
        self._start_limit_s = start_limit_s
        self._drain_s = drain_s
        self._memory_bytes = memory_size * 2**20 if memory_size else None
        self._serving: list[WorkerProcess] = []
        self._all: set[WorkerProcess] = set()
        self._starts: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: deque[asyncio.Future[WorkerProcess]] = deque()
        self._wanted = size.smallest
        self._fewer_since: float | None = None
        self._most_needed = 0
        self._num_losses = 0
        self._failure: FunctionError | None = None
        self._failed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False

    async def start(self) -> WorkerProcess:
        """Start the first worker; the others follow in the background.

        Raises:
            FunctionError: it could not start.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        first: asyncio.Task[WorkerProcess] = asyncio.create_task(self._spawn())
        try:
            worker = await first
        except asyncio.CancelledError:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            raise
        # A replacement is waited for by calls: what once took a second must not be given ten minutes.
        usual_s = max(_MIN_RESTART_LIMIT_S, _RESTART_FACTOR * (loop.time() - began))
        self._start_limit_s = min(self._start_limit_s, usual_s)
        self._wanted = max(1, self.size.initial)
        self.look()
        return worker

    @property
    def workers(self) -> tuple[WorkerProcess, ...]:
        """Those that take calls."""
        return tuple(self._serving)

    @property
    def num_starting(self) -> int:
        return len(self._starts)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    async def take(self) -> WorkerProcess:
        """A worker with a free place, which `give_back` frees again; calls wait for one in order.

        Raises:
            FunctionError: no worker is running, and none is being started.
        """
        if self._closing:
            raise FunctionError(msg("function {name!r} is not running", name=self._name))
        if not self._waiting and (worker := self._free()) is not None:
            worker.take()
            self.look()
            return worker
        place: asyncio.Future[WorkerProcess] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self.look()
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.give_back(place.result())
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(place)

    def give_back(self, worker: WorkerProcess) -> None:
        worker.release()
        self.look()

    def succeeded(self) -> None:
        """A call came out well: whatever killed workers before is over."""
        self._num_losses = 0

    def retire(self, worker: WorkerProcess) -> None:
        """Send no more calls to `worker`; end it when those it has are answered or out of time."""
        if worker.draining or self._closing or worker.exited.is_set():
            return
        self._let_go(worker)
        self.look()

    async def restart(self) -> None:
        """Put a new worker in the place of each, one after another; there are never fewer than before.

        Raises:
            FunctionError: a new one does not start; workers that were not replaced yet keep running.
        """
        for old in self.workers:
            await self._spawn()
            if old in self._serving:
                self._let_go(old)
        self.look()

    async def close(self) -> None:
        """Kill all workers."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._fail_waiting(FunctionError(msg("function {name!r} was closed", name=self._name)))
        for task in self._starts:
            task.cancel()
        await asyncio.gather(*self._starts, return_exceptions=True)
        await asyncio.gather(*(worker.kill() for worker in list(self._all)))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def look(self) -> None:
        """Hand out what is free, and see whether there are workers enough."""
        if self._closing:
            return
        while self._waiting and (worker := self._free()) is not None:
            place = self._waiting.popleft()
            if not place.done():
                worker.take()
                place.set_result(worker)
        needed = self.size.needed(self.load())
        if needed >= self._wanted:
            self._wanted, self._fewer_since = max(needed, self._wanted), None
        self._fill()
        self._shrink(needed)

    def load(self) -> Load:
        """What there is to do."""
        share = 0.0
        if self._memory_bytes and self._serving:
            used = sum(worker.memory_bytes for worker in self._serving)
            share = used / len(self._serving) / self._memory_bytes
        return Load(
            num_workers=len(self._serving) + len(self._starts),
            num_busy=sum(worker.num_in_flight for worker in self._serving),
            num_waiting=len(self._waiting),
            memory_share=share,
        )

    def _free(self) -> WorkerProcess | None:
        """The serving worker with the fewest calls, if one has a place."""
        free = [
            worker
            for worker in self._serving
            if worker.num_in_flight < self.size.concurrency and not worker.exited.is_set()
        ]
        return min(free, key=lambda worker: worker.num_in_flight, default=None)

    def _fill(self) -> None:
        if self._failure is not None:
            cooled = asyncio.get_running_loop().time() - self._failed_at > _COOL_DOWN_S
            if not (cooled and self._waiting):
                if not self._serving:
                    self._fail_waiting(self._failure)
                return
            self._failure = None
        missing = self._wanted - len(self._serving) - len(self._starts)
        for _ in range(min(missing, _STARTS_AT_ONCE - len(self._starts))):
            if self._waiting and not self._serving and not self._starts:
                self._gauges.num_cold_starts += 1
            task = asyncio.create_task(self._bring())
            self._starts.add(task)
            task.add_done_callback(self._brought)

    def _brought(self, task: asyncio.Task[None]) -> None:
        self._starts.discard(task)
        if not task.cancelled():
            task.exception()
        self.look()

    def _shrink(self, needed: int) -> None:
        """Stop workers once fewer have been enough for `idle_s`, those without a call first."""
        if not self.size.elastic:
            return
        loop = asyncio.get_running_loop()
        if needed >= self._wanted:
            return
        if self._fewer_since is None:
            self._fewer_since, self._most_needed = loop.time(), needed
        self._most_needed = max(self._most_needed, needed)
        left_s = self._fewer_since + self.size.idle_s - loop.time()
        if left_s > 0:
            if self._timer is None:
                self._timer = loop.call_later(left_s, self._look_again)
            return
        self._wanted, self._fewer_since = self._most_needed, None
        surplus = len(self._serving) - self._wanted
        for worker in sorted(self._serving, key=lambda one: one.num_in_flight)[: max(0, surplus)]:
            self._let_go(worker)
        if needed < self._wanted:
            self._shrink(needed)  # the next ones, after another `idle_s`

    def _look_again(self) -> None:
        self._timer = None
        self.look()

    def _let_go(self, worker: WorkerProcess) -> None:
        worker.draining = True
        with contextlib.suppress(ValueError):
            self._serving.remove(worker)
        self._follow(self._kill_when_idle(worker))

    async def _spawn(self) -> WorkerProcess:
        worker = self._make()
        self._gauges.num_starts += 1
        await worker.start(limit_s=self._start_limit_s, on_stuck=lambda: self.retire(worker))
        self._all.add(worker)
        self._follow(self._after_exit(worker))
        if self._closing:
            await worker.kill()
            raise FunctionError(msg("function {name!r} was closed", name=self._name))
        self._serving.append(worker)
        self.look()
        return worker

    async def _bring(self) -> None:
        """One more worker, later after every loss; given up after `_MAX_STARTS` starts that failed."""
        failure: FunctionError | None = None
        for attempt in range(_MAX_STARTS):
            await asyncio.sleep(_backoff(self._num_losses + attempt))
            try:
                await self._spawn()
                return
            except FunctionError as error:
                failure = error
        text = f"failed to start again {_MAX_STARTS} times in a row; the last time: {failure}"
        self._failure = FunctionError(msg("function {name!r} {text}", name=self._name, text=text))
        self._failed_at = asyncio.get_running_loop().time()
        if not self._serving:
            self._fail_waiting(self._failure)

    async def _after_exit(self, worker: WorkerProcess) -> None:
        await worker.exited.wait()
        self._all.discard(worker)
        with contextlib.suppress(ValueError):
            self._serving.remove(worker)
        if not worker.draining and not self._closing:
            worker.draining = True
            self._num_losses += 1
            self._gauges.num_losses += 1
            self.look()
        await worker.kill()  # it has gone; this waits for the rest of its output and removes its folder

    async def _kill_when_idle(self, worker: WorkerProcess) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(worker.idle.wait(), self._drain_s)
        await worker.kill()

    def _fail_waiting(self, failure: FunctionError) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_exception(failure)

    def _follow(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _backoff(num_losses: int) -> float:
    """0 s before the first replacement, then 0.1, 0.2, 0.4 ... s."""
    return min(0.1 * 2.0 ** (num_losses - 2), _MAX_BACKOFF_S) if num_losses > 1 else 0.0
