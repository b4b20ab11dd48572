"""Calls lost with their worker -> tried again alone, so that one row that crashes takes no other down twice.

A worker holds many calls at once, and when it dies nothing tells which of them killed it. The next attempt of
each therefore runs in a worker of its own, one at a time. Used by `workers.instance` alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from strop.schema.function import FunctionInput
from strop.schema.reply import FunctionReply


class IsolatedWorker(Protocol):
    """A worker that takes one call at a time."""

    async def call(self, payload: FunctionInput) -> FunctionReply: ...

    async def close(self) -> None: ...


class Quarantine:
    """Who was in a worker when it was lost, and the worker in which they are tried again.

    Side effects:
        Opens an isolated worker for the first call and closes it after the last one waiting.
    """

    def __init__(self, open_worker: Callable[[], IsolatedWorker]) -> None:
        self._open_worker = open_worker
        self._suspects: set[str] = set()
        self._worker: IsolatedWorker | None = None
        self._num_inside = 0
        self._closings: set[asyncio.Task[None]] = set()

    def suspect(self, payload: FunctionInput) -> None:
        """Remember a call that was lost; one without an id cannot be recognised later."""
        if (who := _identity(payload)) is not None:
            self._suspects.add(who)

    def holds(self, payload: FunctionInput) -> bool:
        """Whether this is another attempt of a call that was lost."""
        return _identity(payload) in self._suspects

    async def call(self, payload: FunctionInput) -> FunctionReply:
        """Run it alone; a call that comes out well is no longer suspect."""
        worker = self._worker = self._worker or self._open_worker()
        self._num_inside += 1
        try:
            reply = await worker.call(payload)
        finally:
            self._num_inside -= 1
            if not self._num_inside:
                self._worker = None
                self._close(worker)
        if reply.error_code not in ("worker_lost", "timeout"):
            self._suspects.discard(_identity(payload) or "")
        return reply

    async def close(self) -> None:
        """Kill the worker; its calls are answered."""
        if self._worker is not None:
            await self._worker.close()
        await asyncio.gather(*self._closings, return_exceptions=True)

    def _close(self, worker: IsolatedWorker) -> None:
        task = asyncio.create_task(worker.close())
        self._closings.add(task)
        task.add_done_callback(self._closings.discard)


def _identity(payload: FunctionInput) -> str | None:
    """The same for every attempt of one rollout."""
    metadata = payload.request_metadata
    return metadata.rollout_id if metadata is not None else None
