"""One deployment's replicas: as many as wanted, started again when they die, up to a limit.

A replica that dies is replaced after a wait that grows; one that keeps dying is given up with its last words.
The others go on meanwhile. Lives in one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from strop.errors import EngineError
from strop.schema.deployment import DeploymentStatus
from strop.service.replica import ReplicaSpec, threads_for


class Runs(Protocol):
    """One replica; see `strop.service.replica.Replica`."""

    key: str
    num_in_flight: int
    exited: asyncio.Event

    @property
    def url(self) -> str: ...

    async def start(self, *, limit_s: float) -> None: ...

    async def stop(self) -> None: ...

    async def kill(self) -> None: ...

    def exit_text(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a replica is waited for and how often it is started again.

    Units:
        start_s: seconds to load a model. max_failures: ends in a row before it is given up; one that has
        answered for `steady_s` seconds starts a new row. The wait before a start is `first_wait_s`, doubled
        each time up to `longest_wait_s`.
    """

    start_s: float = 600.0
    max_failures: int = 5
    steady_s: float = 60.0
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0

    def wait_s(self, num_failures: int) -> float:
        return min(self.first_wait_s * 2.0 ** (num_failures - 1), self.longest_wait_s)


@dataclass(slots=True, eq=False)
class _Slot:
    """A place for one replica; `replica` is set while one answers, `error` is how the last one ended."""

    task: asyncio.Task[None] | None = None
    replica: Runs | None = None
    error: str | None = None
    given_up: bool = False
    leaving: bool = False


class Fleet:
    """`on_change` is called whenever `status`, `num_ready` or `error` may have changed; `look_after` is
    awaited beside each replica that answers, and cancelled when it ends."""

    def __init__(
        self,
        spec: ReplicaSpec,
        *,
        make: Callable[[ReplicaSpec], Runs],
        patience: Patience,
        on_change: Callable[[], None],
        look_after: Callable[[Runs], Awaitable[None]] | None = None,
    ) -> None:
        self.spec = spec
        self.capacity = 0
        self._make = make
        self._patience = patience
        self._on_change = on_change
        self._look_after = look_after
        self._slots: list[_Slot] = []
        self._leaving: dict[asyncio.Task[None], _Slot] = {}

    @property
    def ready(self) -> list[Runs]:
        return [slot.replica for slot in self._slots if slot.replica is not None]

    @property
    def num_ready(self) -> int:
        return len(self.ready)

    @property
    def status(self) -> DeploymentStatus:
        if self.num_ready:
            return DeploymentStatus.RUNNING
        if self._slots and all(slot.given_up for slot in self._slots):
            return DeploymentStatus.FAILED
        return DeploymentStatus.DEPLOYING

    @property
    def error(self) -> str | None:
        """Why replicas are missing; None while all are there or coming for the first time."""
        missing = [slot.error for slot in self._slots if slot.replica is None and slot.error is not None]
        return missing[0] if missing else None

    def resize(self, capacity: int) -> None:
        """Have `capacity` replicas from now on; replicas that were given up get another chance.

        Those too many, the least busy first, finish their answers and end.
        """
        self.capacity = capacity
        spare = sorted(self._slots, key=lambda slot: (slot.replica is not None, _load(slot)))
        for slot in spare[: max(0, len(self._slots) - capacity)]:
            self._slots.remove(slot)
            self._retire(slot)
        for slot in self._slots:
            if slot.given_up:
                slot.given_up = False
                slot.task = asyncio.create_task(self._keep(slot))
        while len(self._slots) < capacity:
            slot = _Slot()
            slot.task = asyncio.create_task(self._keep(slot))
            self._slots.append(slot)
        self._on_change()

    def least_busy(self, *, other_than: Runs | None = None) -> Runs | None:
        """The replica with the fewest calls in flight; None when none answers."""
        fit = [replica for replica in self.ready if replica is not other_than and not replica.exited.is_set()]
        return min(fit, key=lambda replica: replica.num_in_flight, default=None)

    async def close(self, *, at_once: bool = False) -> None:
        """End all replicas, after their answers or `at_once`; returns when they are gone."""
        self.capacity = 0
        slots, self._slots = self._slots, []
        for slot in slots:
            self._retire(slot)
        if at_once:
            for slot in self._leaving.values():
                _end(slot)
        if self._leaving:
            await asyncio.wait(set(self._leaving))

    def _retire(self, slot: _Slot) -> None:
        slot.leaving = True
        task = asyncio.create_task(self._leave(slot))
        self._leaving[task] = slot
        task.add_done_callback(self._leaving.pop)

    async def _leave(self, slot: _Slot) -> None:
        """Let the slot's replica finish its answers; one that is still starting just ends."""
        replica, slot.replica = slot.replica, None
        if replica is not None:
            await replica.stop()
        _end(slot)
        if slot.task is not None:
            await asyncio.wait({slot.task})

    async def _keep(self, slot: _Slot) -> None:
        """Have a replica in `slot`, one after the other, until it is given up or cancelled."""
        loop = asyncio.get_running_loop()
        failures = 0
        while failures < self._patience.max_failures:
            if slot.leaving:
                return
            if failures:
                await asyncio.sleep(self._patience.wait_s(failures))
            began = loop.time()
            error = await self._one_life(slot)
            steady = loop.time() - began >= self._patience.steady_s
            failures = 1 if steady else failures + 1
            slot.error = error
            self._on_change()
        slot.given_up = True
        self._on_change()

    async def _one_life(self, slot: _Slot) -> str:
        """Start a replica and wait for its end. Returns how it ended."""
        # Those that answer keep the threads they began with; what starts now takes its part of today's.
        replica = self._make(replace(self.spec, num_threads=threads_for(self.capacity)))
        try:
            await replica.start(limit_s=self._patience.start_s)
        except (EngineError, OSError) as error:
            return f"a replica could not start: {error}"
        slot.replica, slot.error = replica, None
        self._on_change()
        tending = None if self._look_after is None else asyncio.ensure_future(self._look_after(replica))
        try:
            await replica.exited.wait()
            return f"a replica {replica.exit_text()}"
        finally:
            slot.replica = None
            if tending is not None:
                tending.cancel()
                await asyncio.wait({tending})
            await replica.kill()


def _end(slot: _Slot) -> None:
    """Kill the slot's replica, whether it answers or is still starting."""
    if slot.task is not None:
        slot.task.cancel()


def _load(slot: _Slot) -> int:
    return slot.replica.num_in_flight if slot.replica is not None else 0
