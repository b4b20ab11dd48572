"""Ctrl-C -> an orderly end: a flag that the loop looks at between phases; it cuts what does not count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_GLANCE_S = 0.2
"""How often a wait looks at the flag: it may be set where no event loop is."""


class Stopped(Exception):
    """The run was asked to end."""


class StopFlag:
    """Asks a run to end; `set` may come from a signal handler or another thread. Sampling, scoring and
    validating are cut, for nothing of them would count; an update is waited for."""

    def __init__(self) -> None:
        self._asked = False

    def set(self) -> None:
        self._asked = True

    def check(self) -> None:
        """Raises:
        Stopped: `set` has been called.
        """
        if self._asked:
            raise Stopped

    async def cutting(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives, unless the run is asked to end before: then it is cancelled and waited for.

        Raises:
            Stopped: the run was asked to end, before `work` was through or just then.
        """
        task = asyncio.create_task(work)
        try:
            while not task.done():
                self.check()
                await asyncio.wait([task], timeout=_GLANCE_S)
            self.check()
        except (Stopped, asyncio.CancelledError):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        return task.result()

    async def wait(self, seconds: float) -> bool:
        """Let time pass, but no longer than until the run is asked to end. Returns whether it was."""
        end = time.monotonic() + seconds
        while not self._asked and (left := end - time.monotonic()) > 0:  # noqa: ASYNC110 - see _GLANCE_S
            await asyncio.sleep(min(left, _GLANCE_S))
        return self._asked
