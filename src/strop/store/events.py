"""What a person should know about a job: its events, in order, and how far its current phase is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.locales import kept
from strop.schema.job import PLANNED_EVENT, Event, Progress
from strop.store.columns import ROW_ID, PackedJson, UtcTime, Written
from strop.store.tables import Base, Page, of_job, page_of


class EventRow(Base):
    __tablename__ = "events"
    __table_args__ = (Index(None, "job_id", "id"),)

    id: Mapped[int] = mapped_column(ROW_ID, primary_key=True)
    job_id: Mapped[str] = mapped_column(Written, of_job())
    kind: Mapped[str] = mapped_column(Written)
    message: Mapped[str] = mapped_column(Written)
    said: Mapped[str | None] = mapped_column("message_zh", Written)
    """The message with its parameters; older rows have it in Chinese, whence the column's name."""
    step: Mapped[int | None]
    data: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    @property
    def sentence(self) -> str:
        """The message, to be said in the reader's language."""
        return kept(self.message, self.said)

    def event(self) -> Event:
        return Event(
            job_id=self.job_id,
            kind=self.kind,
            message=self.message,
            said=self.said,
            step=self.step,
            data=self.data,
            created_at=self.created_at,
        )


def record_event(session: Session, event: Event) -> None:
    session.add(EventRow(**event.model_dump()))


def list_events(
    session: Session, job_id: str, *, kind: str | None = None, after: str | None = None, limit: int = 200
) -> Page[Event]:
    """Oldest first; a page's `next` also follows a running job."""
    query = select(EventRow).where(EventRow.job_id == job_id).order_by(EventRow.id).limit(limit + 1)
    if kind is not None:
        query = query.where(EventRow.kind == kind)
    if after is not None:
        query = query.where(EventRow.id > int(after))
    rows = session.scalars(query).all()
    return page_of(rows, limit, item=EventRow.event, cursor=lambda row: row.id, after=after)


def planned_steps(session: Session, job_id: str) -> int | None:
    """Of how many steps the job is, as its trainer said last; None before it has."""
    query = (
        select(EventRow.data)
        .where(EventRow.job_id == job_id, EventRow.kind == PLANNED_EVENT)
        .order_by(EventRow.id.desc())
        .limit(1)
    )
    data = session.scalar(query) or {}
    total = data.get("total_steps")
    return total if isinstance(total, int) else None


def last_events(
    session: Session, job_id: str, *, limit: int = 50, before: int | None = None
) -> list[EventRow]:
    """The newest first."""
    query = select(EventRow).where(EventRow.job_id == job_id)
    if before is not None:
        query = query.where(EventRow.id < before)
    return list(session.scalars(query.order_by(EventRow.id.desc()).limit(limit)))


class ProgressRow(Base):
    __tablename__ = "progress"

    job_id: Mapped[str] = mapped_column(Written, of_job(), primary_key=True)
    step: Mapped[int]
    phase: Mapped[str] = mapped_column(Written)
    done: Mapped[int]
    total: Mapped[int]


def record_progress(session: Session, progress: Progress) -> None:
    session.merge(ProgressRow(**progress.model_dump()))


def find_progress(session: Session, job_id: str) -> Progress | None:
    """None until the job has reported some."""
    row = session.get(ProgressRow, job_id)
    if row is None:
        return None
    return Progress(job_id=row.job_id, step=row.step, phase=row.phase, done=row.done, total=row.total)
