"""Step metrics: (job, name, step) -> value, as they are recorded and as pages draw them.

The last value recorded for a step stands; NaN stays NaN. A curve is one range of the table: queries read
ranges or single rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, bindparam, delete, func, insert, literal_column, select, text
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.store.columns import Measured, Written
from strop.store.tables import Base, of_job


class MetricRow(Base):
    """Keyed by name before step: a curve is one range of the table."""

    __tablename__ = "metrics"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012  SQLAlchemy's way

    job_id: Mapped[str] = mapped_column(Written, of_job(), primary_key=True)
    name: Mapped[str] = mapped_column(Written, primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    value: Mapped[float] = mapped_column(Measured, nullable=True)


_FORGET = delete(MetricRow).where(
    MetricRow.job_id == bindparam("job"),
    MetricRow.name == bindparam("metric"),
    MetricRow.step == bindparam("at"),
)


def record_metrics(session: Session, job_id: str, step: int, values: Mapping[str, float]) -> None:
    """Write the values of one step; a name already recorded for that step gets the new value."""
    if not values:
        return
    connection = session.connection()
    connection.execute(_FORGET, [{"job": job_id, "metric": name, "at": step} for name in values])
    rows = [{"job_id": job_id, "step": step, "name": name, "value": value} for name, value in values.items()]
    connection.execute(insert(MetricRow), rows)


def step_metrics(
    session: Session, job_id: str, names: Collection[str] | None = None, *, since_step: int = 0
) -> dict[str, list[tuple[int, float]]]:
    """Every curve of a job, or the named ones: {name: [(step, value)]} in order of steps. NaN means measured
    and undefined; an absent step was not measured. A name never recorded is absent; so is what lies before
    `since_step`."""
    query = (
        select(MetricRow.name, MetricRow.step, MetricRow.value)
        .where(MetricRow.job_id == job_id)
        .order_by(MetricRow.name, MetricRow.step)
    )
    if since_step > 0:
        query = query.where(MetricRow.step >= since_step)
    if names is not None:
        query = query.where(MetricRow.name.in_(list(names)))
    curves: dict[str, list[tuple[int, float]]] = {}
    for name, step, value in session.execute(query):
        curves.setdefault(name, []).append((step, value))
    return curves


STEPPED = ("timing/s/step", "actor/loss", "critic/rewards/mean")
"""Of every step that was trained at least one of these is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A point stands for one step, or for `width` of them: their mean and extremes. None is undefined."""

    steps: list[int]
    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]


_NAMES = text(
    """
    WITH RECURSIVE found(name) AS (
        SELECT (SELECT min(name) FROM metrics WHERE job_id = :job)
        UNION ALL
        SELECT (SELECT min(name) FROM metrics WHERE job_id = :job AND name > found.name)
        FROM found WHERE found.name IS NOT NULL
    )
    SELECT name FROM found WHERE name IS NOT NULL
    """
)


def metric_names(session: Session, job_id: str) -> list[str]:
    """The names a job has recorded, sorted; each is one step into the index, however long its curve."""
    return sorted(session.scalars(_NAMES, {"job": job_id}))


def last_step(session: Session, job_id: str) -> int:
    """The last step that was trained; 0 before the first."""
    steps = (
        session.scalar(
            select(func.max(MetricRow.step)).where(MetricRow.job_id == job_id, MetricRow.name == name)
        )
        for name in STEPPED
    )
    return max((step for step in steps if step is not None), default=0)


def last_values(session: Session, job_id: str, names: Collection[str]) -> dict[str, tuple[int, float]]:
    """The last recorded (step, value) of each name that has one."""
    found: dict[str, tuple[int, float]] = {}
    for name in names:
        row = session.execute(
            select(MetricRow.step, MetricRow.value)
            .where(MetricRow.job_id == job_id, MetricRow.name == name)
            .order_by(MetricRow.step.desc())
            .limit(1)
        ).first()
        if row is not None:
            found[name] = (row[0], row[1])
    return found


def sum_of(session: Session, job_id: str, name: str) -> float | None:
    """The sum of a curve's values; None where it has none."""
    query = select(func.sum(MetricRow.value, type_=MetricRow.value.type))
    value = session.scalar(query.where(MetricRow.job_id == job_id, MetricRow.name == name))
    return None if value is None or math.isnan(value) else value


def recent_mean(session: Session, job_id: str, name: str, *, num_steps: int = 20) -> float | None:
    """The mean of a curve's last values; None where it has none."""
    recent = (
        select(MetricRow.value)
        .where(MetricRow.job_id == job_id, MetricRow.name == name)
        .order_by(MetricRow.step.desc())
        .limit(num_steps)
    )
    values = [value for value in session.scalars(recent) if math.isfinite(value)]
    return sum(values) / len(values) if values else None


def thinned_curves(
    session: Session, job_id: str, names: Sequence[str], *, since_step: int = 0, num_points: int = 600
) -> dict[str, Curve]:
    """The named curves from `since_step` on, each with at most about `num_points` points."""
    if not names:
        return {}
    mine = (MetricRow.job_id == job_id) & (MetricRow.step >= since_step)
    last = session.scalar(select(func.max(MetricRow.step)).where(mine, MetricRow.name.in_(names)))
    if last is None:
        return {}
    width = max(1, math.ceil((last - since_step + 1) / num_points))
    # Written into the text: of a bound number PostgreSQL would not see that both places are the same.
    bucket: ColumnElement[int] = literal_column(f"(metrics.step - {int(since_step)}) / {int(width)}")
    value = MetricRow.__table__.c.value
    query = (
        select(func.min(MetricRow.step), func.avg(value), func.min(value), func.max(value))
        .where(mine, MetricRow.name == bindparam("one"))
        .group_by(bucket)
        .order_by(bucket)
    )
    # One name after the other takes less than half of what all in one query do, which are sorted together.
    connection = session.connection()
    curves = {name: _curve(connection.execute(query, {"one": name})) for name in dict.fromkeys(names)}
    return {name: curve for name, curve in curves.items() if curve.steps}


def _curve(rows: Iterable[Any]) -> Curve:
    curve = Curve(steps=[], mean=[], low=[], high=[])
    for step, mean, low, high in rows:
        curve.steps.append(step)
        for values, one in ((curve.mean, mean), (curve.low, low), (curve.high, high)):
            values.append(None if one is None or not math.isfinite(one) else one)
    return curve
