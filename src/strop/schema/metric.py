"""What a metric is; `tracing.metrics` declares them all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Aggregation(StrEnum):
    """How values of several mini-batches or trajectories become the value of a step."""

    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    SUM = "sum"
    LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One declared metric.

    `name` is the full name, with `<placeholder>` segments where users name parts (`trace/reward/<name>/avg`).
    `healthy` is (low, high), None an open end, by algorithm, `*` for all.
    """

    name: str
    unit: str
    aggregation: Aggregation
    en: str
    zh: str
    healthy: dict[str, tuple[float | None, float | None]]
