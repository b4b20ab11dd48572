"""How far the current phase of a job is: one row a job, written over as it moves."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.schema.job import Progress
from strop.store.columns import Written
from strop.store.tables import Base, of_job


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
    """None while the job has told of none."""
    row = session.get(ProgressRow, job_id)
    if row is None:
        return None
    return Progress(job_id=row.job_id, step=row.step, phase=row.phase, done=row.done, total=row.total)
