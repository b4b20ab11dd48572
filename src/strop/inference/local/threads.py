"""Threads that multiply -> one at a time with workers of its own, so that each runs at full speed.

OpenMP keeps a team of workers for every thread that ever ran a parallel operation. libgomp counts them, and
once they
are more than the processors, workers that wait for the next operation go to sleep instead of spinning: a
step of the engine took 20 % longer for as long as an idle learner kept its team, and the other way round. A
thread that is done for a while therefore gives its team back; the next parallel operation makes a new one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

SOFT_PAUSE = 1
"""`omp_pause_soft` of OpenMP 5.0: settings of the thread are kept."""


def release_team() -> None:
    """Give back the calling thread's OpenMP workers. Does nothing where torch runs on another runtime."""
    pause = _pause()
    if pause is not None:
        pause(SOFT_PAUSE)


@cache
def _pause() -> Callable[[int], int] | None:
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            return ctypes.CDLL(str(path)).omp_pause_resource_all
        except (OSError, AttributeError):
            continue
    return None
