"""A function's runtime, and what its instance has to do -> how many workers it should have. Pure."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from strop.config.job import FunctionRuntime
from strop.locales import msg
from strop.processes.limits import Limits

DEFAULT_THRESHOLD = 0.8
QUEUE_LIMIT = 1000
"""Calls that may wait for a place in one instance; more are answered `busy`, and callers try again."""
IDLE_S = 60.0


def most_workers() -> int:
    """Workers that one function may have on this machine."""
    return max(2, 2 * (os.cpu_count() or 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What an instance does now. `memory_share` is the mean of its workers, of their memory_size."""

    num_workers: int
    num_busy: int
    num_waiting: int
    memory_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """How many workers there are: `initial` at first, then between `smallest` and `largest`.

    Units:
        concurrency: calls in flight in one worker. The thresholds are shares of what all workers hold.
        idle_s: seconds for which fewer workers would have been enough, before one is stopped.
    """

    concurrency: int = 64
    initial: int = 1
    smallest: int = 1
    largest: int = 1
    concurrency_threshold: float = DEFAULT_THRESHOLD
    memory_threshold: float = 1.0
    queue: int = QUEUE_LIMIT
    idle_s: float = IDLE_S

    @classmethod
    def of(cls, runtime: FunctionRuntime, *, most: int | None = None) -> PoolSize:
        """What a runtime asks for, reduced to what this machine can run."""
        most = most_workers() if most is None else most
        smallest, initial, largest = (min(count, most) for count in runtime.capacities)
        return cls(
            concurrency=runtime.concurrency,
            initial=initial,
            smallest=smallest,
            largest=largest,
            concurrency_threshold=runtime.concurrency_scale_threshold or DEFAULT_THRESHOLD,
            memory_threshold=runtime.memory_scale_threshold or 1.0,
        )

    @property
    def elastic(self) -> bool:
        return self.smallest < self.largest or self.initial != self.smallest

    def needed(self, load: Load) -> int:
        """Workers for this load, within the bounds.

        >>> size = PoolSize(concurrency=10, smallest=0, largest=4, concurrency_threshold=0.5)
        >>> [size.needed(Load(num_workers=1, num_busy=busy, num_waiting=0)) for busy in (0, 1, 5, 6, 30)]
        [0, 1, 1, 2, 4]
        """
        demand = load.num_busy + load.num_waiting
        count = math.ceil(demand / (self.concurrency * self.concurrency_threshold)) if demand else 0
        if load.memory_share > self.memory_threshold and demand:
            count = max(count, load.num_workers + 1)
        return max(self.smallest, min(count, self.largest))


def limits_of(runtime: FunctionRuntime) -> Limits:
    """What one worker of it may use."""
    return Limits(cpu=runtime.cpu, memory_size=runtime.memory_size, disk_size=runtime.disk_size)


def cut(runtime: FunctionRuntime, *, most: int | None = None) -> list[str]:
    """What this machine cannot run, as sentences for people."""
    most = most_workers() if most is None else most
    asked = {
        name: count
        for name in ("capacity", "min_capacity", "max_capacity")
        if (count := getattr(runtime, name)) is not None and count > most
    }
    told = ", ".join(f"{name} {count}" for name, count in asked.items())
    if not asked:
        return []
    return [msg("{told}: {most} workers is the most for one function on this machine", told=told, most=most)]
