"""Ctrl-C -> an orderly end: a flag that the loop looks at between two phases."""

from __future__ import annotations

import asyncio
import time

_GLANCE_S = 0.2
"""How often a wait looks at the flag: it may be set where no event loop is."""


class Stopped(Exception):
    """The run was asked to end."""


class StopFlag:
    """Asks a run to end after its current phase; `set` may come from a signal handler or another thread."""

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

    async def wait(self, seconds: float) -> bool:
        """Let time pass, but no longer than until the run is asked to end. Returns whether it was."""
        end = time.monotonic() + seconds
        while not self._asked and (left := end - time.monotonic()) > 0:  # noqa: ASYNC110 - see _GLANCE_S
            await asyncio.sleep(min(left, _GLANCE_S))
        return self._asked
