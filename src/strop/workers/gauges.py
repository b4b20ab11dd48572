"""Calls and starts of an instance -> counts and latencies for people."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from strop.schema.reply import FunctionReply

_NUM_LATENCIES = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An instance at one moment.

    Units:
        p50_s, p95_s: seconds of the newest answered calls, waiting included; None before the first.
        memory_bytes: of all workers.
    """

    workers: int
    starting: int
    busy: int
    queue: int
    calls: int
    cold_starts: int
    starts: int
    losses: int
    p50_s: float | None
    p95_s: float | None
    memory_bytes: int
    errors: dict[str, int]


@dataclass(slots=True)
class Gauges:
    """Counts since the instance began. A cold start is one that a call waited for with no worker there."""

    num_calls: int = 0
    num_starts: int = 0
    num_cold_starts: int = 0
    num_losses: int = 0
    errors: Counter[str] = field(default_factory=Counter[str])
    _latencies_s: deque[float] = field(default_factory=lambda: deque[float](maxlen=_NUM_LATENCIES))

    def count(self, reply: FunctionReply) -> None:
        """One call has been answered."""
        self.num_calls += 1
        if reply.error_code is not None:
            self.errors[reply.error_code] += 1
        self._latencies_s.append(reply.latency_s)

    def percentile(self, share: float) -> float | None:
        """The latency that `share` of the newest calls stay within (nearest rank)."""
        ordered = sorted(self._latencies_s)
        if not ordered:
            return None
        return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
