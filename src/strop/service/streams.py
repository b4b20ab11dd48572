"""Event streams -> as many as a workspace may have open, looked after by few threads.

A stream lives as long as a job and looks twice a second; a flood of them must starve neither requests nor the
supervision of jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from strop.errors import ThrottledError
from strop.locales import msg

MAX_OPEN = 100
"""Of one workspace."""

_NUM_THREADS = 4

P = ParamSpec("P")
T = TypeVar("T")


class Streams:
    """Concurrency: belongs to one event loop."""

    def __init__(self, limit: int = MAX_OPEN) -> None:
        self._limit = limit
        self._open: Counter[str] = Counter()
        self._threads: CapacityLimiter | None = None

    @contextmanager
    def one_more(self, workspace_id: str) -> Generator[None]:
        """Count a stream while the block runs.

        Raises:
            ThrottledError: the workspace has as many as it may.
        """
        if self._open[workspace_id] >= self._limit:
            raise ThrottledError(
                msg("{limit} event streams of this workspace are open already", limit=self._limit),
                fix=msg("close some, or follow several jobs with GET .../events?after=CURSOR"),
            )
        self._open[workspace_id] += 1
        try:
            yield
        finally:
            self._open[workspace_id] -= 1

    async def look(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `read` in one of the few threads that all streams share."""
        if self._threads is None:
            self._threads = CapacityLimiter(_NUM_THREADS)
        return await anyio.to_thread.run_sync(lambda: read(*args, **kwargs), limiter=self._threads)
