"""Values in a row -> whether they rise, fall, stand still or hang together. Plain statistics, no library.

Noise is told from a trend by the slope's own uncertainty, so that no rule needs to know a metric's scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A straight line through values. `change` is what it gained from first to last; `t` its slope in units
    of the slope's standard error."""

    change: float
    t: float
    error: float = 0.0

    @property
    def rises(self) -> bool:
        return self.t > SURE

    @property
    def falls(self) -> bool:
        return self.t < -SURE


SURE = 3.0
"""Standard errors from which on a slope counts: 1 in 200 straight noises of ten steps goes beyond."""

FLAT = Trend(change=0.0, t=0.0)


def trend(values: Sequence[float]) -> Trend:
    """Least squares over equal steps; `FLAT` for fewer than four values or none that differ.

    >>> trend([1.0, 2.0, 3.0, 4.0]).change
    3.0
    """
    n = len(values)
    if n < 4:
        return FLAT
    middle, level = (n - 1) / 2, fmean(values)
    spread = sum((i - middle) ** 2 for i in range(n))
    slope = sum((i - middle) * (value - level) for i, value in enumerate(values)) / spread
    residual = sum((value - level - slope * (i - middle)) ** 2 for i, value in enumerate(values))
    error = math.sqrt(residual / (n - 2) / spread)
    if error < 1e-12 * max(1.0, abs(level)):
        return Trend(change=slope * (n - 1), t=math.copysign(math.inf, slope) if abs(slope) > 1e-12 else 0.0)
    return Trend(change=slope * (n - 1), t=slope / error, error=error * (n - 1))


def correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Pearson's; 0 where one of the two does not vary.

    >>> correlation([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    1.0
    """
    if len(xs) < 3:
        return 0.0
    mean_x, mean_y = fmean(xs), fmean(ys)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    var_x, var_y = sum((x - mean_x) ** 2 for x in xs), sum((y - mean_y) ** 2 for y in ys)
    if var_x < 1e-18 or var_y < 1e-18:
        return 0.0
    return max(-1.0, min(1.0, covariance / math.sqrt(var_x * var_y)))


def middle_of(values: Sequence[float]) -> float:
    """The median; NaN of nothing."""
    return median(values) if values else math.nan


def reversals(values: Sequence[float], least: float) -> int:
    """How often the direction turns, counting only swings of at least `least`.

    >>> reversals([0.0, 1.0, 0.0, 1.0, 0.9], 0.5)
    2
    """
    turns, direction, extreme = 0, 0, values[0] if values else 0.0
    for value in values:
        step = value - extreme
        if direction == 0:
            if abs(step) >= least:
                direction, extreme = (1 if step > 0 else -1), value
        elif step * direction > 0:
            extreme = value
        elif abs(step) >= least:
            turns, direction, extreme = turns + 1, -direction, value
    return turns
