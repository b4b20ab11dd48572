"""A function and a time limit -> its result, or None when it took too long: a process is killed then.

For comparisons that an answer can make endless (`9**9**9`), in Python or in C. A thread could not be stopped,
and `signal.alarm` needs a main thread, which a worker's calls do not have.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as NotInTime
from typing import Any, TypeVar

Result = TypeVar("Result")
_MEMORY_BYTES = 4 * 2**30
_MAX_CALLS = 2000
"""After so many a process is replaced: what a library caches is gone then."""

_pool: Any = None
_lock = threading.Lock()


def isolated(function: Callable[..., Result], *arguments: object, limit_s: float) -> Result | None:
    """Call a module-level function with arguments that can be pickled.

    Units:
        limit_s: seconds from its beginning; waiting for a free process does not count.
    Raises:
        Whatever it raises; MemoryError when it took more than 4 GiB.
    Side effects:
        Starts a pool of processes at first use, as many as there are processors, 4 at most.
    """
    work = _processes().schedule(function, args=arguments, timeout=limit_s)
    try:
        return work.result()
    except NotInTime:
        return None


def _processes() -> Any:
    global _pool
    with _lock:
        if _pool is None or not _pool.active:
            from pebble import ProcessPool

            # Not a fork: this process has threads, and a lock that one of them holds would be held for ever.
            _pool = ProcessPool(
                max_workers=min(os.cpu_count() or 1, 4),
                max_tasks=_MAX_CALLS,
                initializer=_limit_memory,
                context=multiprocessing.get_context("spawn"),
            )
            atexit.register(_close)
        return _pool


def _limit_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


def _close() -> None:
    if _pool is not None:
        _pool.stop()
        _pool.join()
