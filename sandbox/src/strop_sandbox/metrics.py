"""What a sandbox does -> Prometheus text for `GET /metrics`, and a line in the log for what went wrong."""

from __future__ import annotations

import logging

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from strop_sandbox.pool import Pool
from strop_sandbox.slots import Slots
from strop_sandbox.wire import CommandStatus, RunCodeResponse, RunStatus

_log = logging.getLogger(__name__)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counters and gauges of one server, in a registry of their own."""

    def __init__(self, pool: Pool, slots: Slots) -> None:
        self._registry = registry = CollectorRegistry()
        self._runs = Counter(
            "strop_sandbox_runs",
            "Programs by language and verdict.",
            ["language", "verdict"],
            registry=registry,
        )
        self._submissions = Counter(
            "strop_sandbox_submissions", "Submissions by language and verdict.", ["language", "verdict"],
            registry=registry,
        )  # fmt: skip
        self._refused = Counter("strop_sandbox_refused", "Requests refused with 429.", registry=registry)
        self._seconds = Histogram(
            "strop_sandbox_run_seconds",
            "Seconds from a request's turn to its answer.",
            buckets=_SECONDS,
            registry=registry,
        )
        gauges = {
            "running": ("Turns taken.", lambda: slots.num_running),
            "waiting": ("Programs that wait for a turn.", lambda: slots.num_waiting),
            "requests": ("Requests under way.", lambda: slots.num_admitted),
            "boxes_ready": ("Boxes that stand ready.", lambda: pool.num_ready),
            "boxes_started": ("Boxes started so far.", lambda: pool.num_started),
            "boxes_cold": ("Boxes started while a request waited for one.", lambda: pool.num_cold),
        }
        for name, (text, read) in gauges.items():
            Gauge(f"strop_sandbox_{name}", text, registry=registry).set_function(read)

    def ran(self, language: str, response: RunCodeResponse, seconds: float) -> None:
        self._runs.labels(language, verdict(response)).inc()
        self._seconds.observe(seconds)
        if response.status is RunStatus.SANDBOX_ERROR:
            _log.error("a %s program could not be run: %s", language, response.message)

    def submitted(self, language: str, accepted: bool) -> None:
        self._submissions.labels(language, "accepted" if accepted else "rejected").inc()

    def refused(self) -> None:
        self._refused.inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)


def verdict(response: RunCodeResponse) -> str:
    """One word for how a program ended, finer than the wire's three."""
    if response.status is RunStatus.SANDBOX_ERROR:
        return "sandbox_error"
    compiled, ran = response.compile_result, response.run_result
    if ran is None:
        late = compiled is not None and compiled.status is CommandStatus.TIME_LIMIT_EXCEEDED
        return "compile_time_limit" if late else "compile_error"
    if ran.reason:
        return ran.reason
    if ran.signal:
        return "signal"
    return "success" if ran.return_code == 0 else "error"
