"""Jobs as a list page asks for them: by status and words, newest first, with how far each has come."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, or_, select, tuple_
from sqlalchemy.orm import Session

from strop.schema.job import PLANNED_EVENT, Job, JobKind, JobStatus
from strop.store.events import EventRow
from strop.store.jobs import JobRow
from strop.store.tables import Page, page_of


def find_jobs(
    session: Session,
    *,
    workspace_id: str,
    statuses: Sequence[JobStatus] = (),
    words: Sequence[str] = (),
    after: str | None = None,
    limit: int = 50,
) -> Page[Job]:
    """Newest first; every word must be in the job's name, id or model. `after` is the last `next`."""
    training = JobRow.kind == JobKind.TRAINING.value
    query = select(JobRow).where(JobRow.workspace_id == workspace_id, training)
    if statuses:
        query = query.where(JobRow.status.in_([status.value for status in statuses]))
    for word in words:
        fields = (JobRow.name, JobRow.job_id, JobRow.model)
        query = query.where(or_(*(func.lower(one).contains(word.lower(), autoescape=True) for one in fields)))
    if after is not None:
        last = session.get(JobRow, after)
        if last is not None:
            place = tuple_(last.created_at, last.job_id)
            query = query.where(tuple_(JobRow.created_at, JobRow.job_id) < place)
    rows = session.scalars(
        query.order_by(JobRow.created_at.desc(), JobRow.job_id.desc()).limit(limit + 1)
    ).all()
    return page_of(rows, limit, item=JobRow.job, cursor=lambda row: row.job_id, after=after)


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


def jobs_that_resume(session: Session, job_id: str) -> list[str]:
    """The jobs that went on from this one."""
    query = select(JobRow.job_id).where(JobRow.resumes == job_id).order_by(JobRow.created_at)
    return list(session.scalars(query))
