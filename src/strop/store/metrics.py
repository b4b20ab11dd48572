"""Step metrics: (job, step, name) -> value. The last value recorded for a step stands; NaN stays NaN."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import bindparam, delete, insert, select
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


def metric_names(session: Session, job_id: str) -> list[str]:
    """The names a job has recorded, sorted."""
    query = select(MetricRow.name).where(MetricRow.job_id == job_id).distinct()
    return sorted(session.scalars(query))
