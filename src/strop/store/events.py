"""Events: what a person should know about a job, in order."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.schema.job import Event
from strop.store.columns import ROW_ID, PackedJson, UtcTime, Written
from strop.store.tables import Base, Page, of_job, page_of


class EventRow(Base):
    __tablename__ = "events"
    __table_args__ = (Index(None, "job_id", "id"),)

    id: Mapped[int] = mapped_column(ROW_ID, primary_key=True)
    job_id: Mapped[str] = mapped_column(Written, of_job())
    kind: Mapped[str] = mapped_column(Written)
    message: Mapped[str] = mapped_column(Written)
    message_zh: Mapped[str | None] = mapped_column(Written)
    step: Mapped[int | None]
    data: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    def event(self) -> Event:
        return Event(
            job_id=self.job_id,
            kind=self.kind,
            message=self.message,
            message_zh=self.message_zh,
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
