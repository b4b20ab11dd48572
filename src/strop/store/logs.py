"""Log lines of a job's processes: trainer, engine, functions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Index, func, insert, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.schema.job import LogLine
from strop.store.columns import ROW_ID, UtcTime, Written
from strop.store.tables import Base, Page, of_job, page_of


class LogRow(Base):
    __tablename__ = "logs"
    __table_args__ = (Index(None, "job_id", "id"), Index(None, "job_id", "component", "id"))

    id: Mapped[int] = mapped_column(ROW_ID, primary_key=True)
    job_id: Mapped[str] = mapped_column(Written, of_job())
    component: Mapped[str] = mapped_column(Written)
    stream: Mapped[str] = mapped_column(Written)
    text: Mapped[str] = mapped_column(Written)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    def line(self) -> LogLine:
        return LogLine(
            job_id=self.job_id,
            component=self.component,
            stream=self.stream,
            text=self.text,
            created_at=self.created_at,
        )


def record_lines(session: Session, lines: Sequence[LogLine]) -> None:
    if lines:
        session.connection().execute(insert(LogRow), [line.model_dump() for line in lines])


def log_tail(
    session: Session, job_id: str, *, component: str | None = None, lines: int = 100
) -> Page[LogLine]:
    """The last lines, oldest of them first; pass the page's `next` to `log_lines` to follow."""
    query = select(LogRow).where(LogRow.job_id == job_id).order_by(LogRow.id.desc()).limit(lines)
    if component is not None:
        query = query.where(LogRow.component == component)
    rows = session.scalars(query).all()[::-1]
    return page_of(rows, lines, item=LogRow.line, cursor=lambda row: row.id, after=None)


def log_lines(
    session: Session, job_id: str, *, component: str | None = None, after: str | None = None, limit: int = 500
) -> Page[LogLine]:
    """Oldest first; a page's `next` also follows a running job."""
    query = select(LogRow).where(LogRow.job_id == job_id).order_by(LogRow.id).limit(limit + 1)
    if component is not None:
        query = query.where(LogRow.component == component)
    if after is not None:
        query = query.where(LogRow.id > int(after))
    rows = session.scalars(query).all()
    return page_of(rows, limit, item=LogRow.line, cursor=lambda row: row.id, after=after)


def numbered_lines(session: Session, job_id: str, *, offset: int, limit: int) -> tuple[list[LogLine], int]:
    """`limit` lines from the `offset`th on, counted from 1, and how many there are."""
    total = session.scalar(select(func.count()).select_from(LogRow).where(LogRow.job_id == job_id)) or 0
    query = select(LogRow).where(LogRow.job_id == job_id).order_by(LogRow.id)
    rows = session.scalars(query.offset(offset - 1).limit(limit))
    return [row.line() for row in rows], total
