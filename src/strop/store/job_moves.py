"""Where a job has been: each status with the time at which it took it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.schema.job import JobStatus
from strop.store.columns import ROW_ID, UtcTime, Written
from strop.store.tables import Base, of_job


class JobMoveRow(Base):
    __tablename__ = "job_moves"
    __table_args__ = (Index(None, "job_id", "id"),)

    id: Mapped[int] = mapped_column(ROW_ID, primary_key=True)
    job_id: Mapped[str] = mapped_column(Written, of_job())
    status: Mapped[str] = mapped_column(Written)
    at: Mapped[datetime] = mapped_column(UtcTime)


def record_move(session: Session, job_id: str, status: JobStatus, at: datetime) -> None:
    session.add(JobMoveRow(job_id=job_id, status=status.value, at=at))


def moves_of(session: Session, job_id: str) -> list[tuple[JobStatus, datetime]]:
    """In order. Empty for a job that an older Strop recorded."""
    query = (
        select(JobMoveRow.status, JobMoveRow.at).where(JobMoveRow.job_id == job_id).order_by(JobMoveRow.id)
    )
    return [(JobStatus(status), at) for status, at in session.execute(query)]
