"""Numbers -> small pictures as coordinates: templates write them as SVG, without script or style."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of a histogram: its bounds, count, and place in a picture of 100 by 100."""

    low: float
    high: float
    count: int
    x: float
    width: float
    height: float


def histogram(values: Sequence[float], num_bins: int = 20) -> list[Bar]:
    """Equal bins from the least to the greatest; of equal values one bar.

    >>> [(bar.count, bar.low, bar.high) for bar in histogram([0, 0, 1, 1], num_bins=2)]
    [(2, 0.0, 0.5), (2, 0.5, 1.0)]
    """
    finite = [float(value) for value in values if math.isfinite(value)]
    if not finite:
        return []
    low, high = min(finite), max(finite)
    if low == high:
        return [Bar(low=low, high=high, count=len(finite), x=40.0, width=20.0, height=100.0)]
    counts = [0] * num_bins
    for value in finite:
        counts[min(num_bins - 1, int((value - low) / (high - low) * num_bins))] += 1
    step, wide = (high - low) / num_bins, 100 / num_bins
    return [
        Bar(
            low=low + index * step,
            high=low + (index + 1) * step,
            count=count,
            x=round(index * wide, 3),
            width=round(wide * 0.92, 3),
            height=round(100 * count / max(counts), 3),
        )
        for index, count in enumerate(counts)
    ]


def shade(value: float | None, low: float, high: float) -> str:
    """A class for a reward by its place between the least and the greatest of its page.

    >>> shade(0.0, 0.0, 1.0), shade(1.0, 0.0, 1.0), shade(None, 0.0, 1.0), shade(0.5, 0.5, 0.5)
    ('r0', 'r4', 'rx', 'r2')
    """
    if value is None or not math.isfinite(value):
        return "rx"
    return "r2" if high <= low else f"r{min(4, int((value - low) / (high - low) * 5))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A point in a picture of 100 by 100, y downwards."""

    x: float
    y: float


def scatter(points: Sequence[tuple[float, float]]) -> list[Dot]:
    """Points spread over the picture, each axis by its own range.

    >>> [(dot.x, dot.y) for dot in scatter([(1, 0.0), (3, 1.0)])]
    [(2.0, 96.0), (98.0, 4.0)]
    """
    if not points:
        return []
    xs, ys = [x for x, _ in points], [y for _, y in points]

    def place(value: float, low: float, high: float, size: float, margin: float) -> float:
        share = 0.5 if high <= low else (value - low) / (high - low)
        return round(margin + share * (size - 2 * margin), 2)

    return [
        Dot(x=place(x, min(xs), max(xs), 100, 2), y=round(100 - place(y, min(ys), max(ys), 100, 4), 2))
        for x, y in points
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """A line in a picture of 100 by 100, y downwards, before the band of what is healthy."""

    line: str
    band_y: float
    band_height: float


def strip(
    points: Sequence[tuple[float, float]], healthy: tuple[float | None, float | None] | None
) -> Strip | None:
    """A stretch of a curve; its height takes in the bounds that it has. None of fewer than two points.

    >>> strip([(1, 0.0), (2, 2.0)], (None, 1.0))
    Strip(line='0.0,100.0 100.0,0.0', band_y=50.0, band_height=50.0)
    """
    if len(points) < 2:
        return None
    low_bound, high_bound = healthy or (None, None)
    values = [y for _, y in points]
    heights = [*values, *(bound for bound in (low_bound, high_bound) if bound is not None)]
    bottom, span = min(heights), max(heights) - min(heights)
    begin, width = points[0][0], max(points[-1][0] - points[0][0], 1e-12)

    def down(value: float) -> float:
        return round(100 - 100 * (value - bottom) / span, 2) if span > 0 else 50.0

    top = down(high_bound) if high_bound is not None else 0.0
    end = down(low_bound) if low_bound is not None else 100.0
    return Strip(
        line=" ".join(f"{round(100 * (x - begin) / width, 2)},{down(y)}" for x, y in points),
        band_y=top,
        band_height=round(end - top, 2) if healthy else 0.0,
    )
