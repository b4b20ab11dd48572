"""Submitted jobs: what their trainers need, what their owners want, and which process works on them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.errors import MissingError
from strop.locales import msg
from strop.schema.job import ALLOWED_MOVES, Job
from strop.schema.submission import Submission, Wanted
from strop.store.columns import PackedJson, UtcTime, Written
from strop.store.jobs import JobRow
from strop.store.tables import Base, of_job


class SubmissionRow(Base):
    __tablename__ = "submissions"

    job_id: Mapped[str] = mapped_column(Written, of_job(), primary_key=True)
    creator: Mapped[str] = mapped_column(Written)
    request: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    config: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    bundles: Mapped[dict[str, str]] = mapped_column(PackedJson)
    layers: Mapped[dict[str, str]] = mapped_column(PackedJson)
    files: Mapped[list[tuple[str, str, str]]] = mapped_column(PackedJson)
    wanted: Mapped[str] = mapped_column(Written)
    wanted_at: Mapped[datetime | None] = mapped_column(UtcTime)
    deaths: Mapped[int]
    reached: Mapped[int]
    owner: Mapped[str | None] = mapped_column(Written)

    def submission(self) -> Submission:
        values = {name: getattr(self, name) for name in Submission.model_fields}
        return Submission.model_validate(values)


def create_submission(session: Session, submission: Submission) -> None:
    session.add(SubmissionRow(**{**submission.model_dump(), "wanted": submission.wanted.value}))
    session.flush()


def get_submission(session: Session, job_id: str) -> Submission:
    """Raises:
    MissingError: the job was not submitted to a server.
    """
    row = session.get(SubmissionRow, job_id)
    if row is None:
        raise MissingError(
            msg("job {job_id!r} was not submitted to this server", job_id=job_id),
            fix=msg("submit it, or use strop run"),
        )
    return row.submission()


def submissions_of(session: Session, job_ids: list[str]) -> dict[str, Submission]:
    """The submissions among these jobs, by job; those of `strop run` have none."""
    rows = session.scalars(select(SubmissionRow).where(SubmissionRow.job_id.in_(job_ids)))
    return {row.job_id: row.submission() for row in rows}


def unfinished(session: Session, *, owner: str | None = None) -> list[tuple[Job, Submission]]:
    """Every submitted job that has not ended, oldest first: what a supervisor looks after. Those of a
    `strop run` are their `owner`'s alone."""
    living = [status.value for status, targets in ALLOWED_MOVES.items() if targets]
    query = (
        select(JobRow, SubmissionRow)
        .join(SubmissionRow, SubmissionRow.job_id == JobRow.job_id)
        .where(JobRow.status.in_(living), SubmissionRow.owner.is_not_distinct_from(owner))
        .order_by(JobRow.created_at, JobRow.job_id)
    )
    return [(job.job(), submission.submission()) for job, submission in session.execute(query)]


def want(session: Session, job_id: str, wanted: Wanted) -> None:
    """Write what the owner wants; the trainer looks at it between phases."""
    values = {"wanted": wanted.value, "wanted_at": datetime.now(UTC)}
    session.execute(update(SubmissionRow).where(SubmissionRow.job_id == job_id).values(values))


def wanted_of(session: Session, job_id: str) -> Wanted:
    """What is wanted now; RUN for a job that no server supervises."""
    found = session.scalar(select(SubmissionRow.wanted).where(SubmissionRow.job_id == job_id))
    return Wanted(found) if found is not None else Wanted.RUN


def count_deaths(session: Session, job_id: str, *, deaths: int, reached: int) -> None:
    values = {"deaths": deaths, "reached": reached}
    session.execute(update(SubmissionRow).where(SubmissionRow.job_id == job_id).values(values))
