"""What a served model counts -> Prometheus text for `GET /metrics`.

The training metrics have a registry of their own (`strop.tracing`); these are about a running server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Outcome(StrEnum):
    """How a call ended: answered, refused (4xx), abandoned by its client, or failed."""

    ANSWERED = "answered"
    REFUSED = "refused"
    ABANDONED = "abandoned"
    FAILED = "failed"


Readings = Callable[[], dict[str, float]]
"""What the engine says of itself now; the names are those of `ENGINE_GAUGES` and `ENGINE_COUNTERS`."""

ENGINE_GAUGES = {
    "strop_engine_running": "Answers being sampled.",
    "strop_engine_waiting": "Answers waiting for a place in the batch.",
}
ENGINE_COUNTERS = {
    "strop_engine_steps": "Forward passes.",
    "strop_engine_prefix_hit_tokens": "Prompt tokens whose keys and values were in the cache.",
    "strop_engine_busy_seconds": "Seconds spent stepping.",
}


class ServingMetrics:
    """Counters of one process, in a registry of their own."""

    def __init__(self, readings: Readings | None = None) -> None:
        self._registry = registry = CollectorRegistry()
        self._calls = Counter("strop_calls", "Chat calls by how they ended.", ["outcome"], registry=registry)
        self._prompt = Counter("strop_prompt_tokens", "Prompt tokens of answered calls.", registry=registry)
        self._sampled = Counter(
            "strop_completion_tokens", "Sampled tokens of answered calls.", registry=registry
        )
        self.answer_s = Histogram(
            "strop_answer_seconds",
            "Seconds from accepting a call to its whole answer.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.first_token_s = Histogram(
            "strop_first_token_seconds",
            "Seconds from accepting a streamed call to its first token.",
            buckets=_SECONDS,
            registry=registry,
        )
        for outcome in Outcome:
            self._calls.labels(outcome)
        if readings is not None:
            registry.register(_EngineCollector(readings))

    def count(self, outcome: Outcome) -> None:
        self._calls.labels(outcome).inc()

    def answered(self, num_prompt_tokens: int, num_sampled: int) -> None:
        self._prompt.inc(num_prompt_tokens)
        self._sampled.inc(num_sampled)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        now = self._readings()
        for name, text in ENGINE_GAUGES.items():
            yield GaugeMetricFamily(name, text, value=now[name])
        for name, text in ENGINE_COUNTERS.items():
            yield CounterMetricFamily(name, text, value=now[name])
