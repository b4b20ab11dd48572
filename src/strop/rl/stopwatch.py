"""Phases -> seconds. For `rl.loop`."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager


class Stopwatch:
    """Seconds by name; phases may nest, and one that comes again adds up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Generator[None]:
        started = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - started

    def add(self, seconds: Mapping[str, float]) -> None:
        """Phases that were timed elsewhere."""
        for phase, value in seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + value
