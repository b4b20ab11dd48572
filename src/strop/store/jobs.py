"""Jobs: one row a job, whose status moves only along `schema.job.ALLOWED_MOVES`, and a row for each move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Index, Select, column, delete, func, or_, select, table, tuple_, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.errors import ConflictError, MissingError
from strop.locales import as_json, msg
from strop.processes.mark import ProcessMark, is_gone, this_process
from strop.schema.access import DEFAULT_WORKSPACE
from strop.schema.job import ALLOWED_MOVES, Job, JobKind, JobStatus
from strop.store.columns import ROW_ID, PackedJson, UtcTime, Written
from strop.store.tables import Base, Page, of_job, page_of


class JobRow(Base):
    __tablename__ = "jobs"
    __table_args__ = (
        Index(None, "created_at", "job_id"),
        Index(None, "workspace_id", "created_at", "job_id"),
    )

    job_id: Mapped[str] = mapped_column(Written, primary_key=True)
    name: Mapped[str] = mapped_column(Written)
    status: Mapped[str] = mapped_column(Written)
    model: Mapped[str] = mapped_column(Written)
    kind: Mapped[str] = mapped_column(Written, server_default=JobKind.TRAINING.value)
    workspace_id: Mapped[str] = mapped_column(Written, server_default=DEFAULT_WORKSPACE)
    config: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    error: Mapped[str | None] = mapped_column(Written)
    error_said: Mapped[str | None] = mapped_column("error_zh", Written)
    """The error with its parameters; older rows have it in Chinese, whence the column's name."""
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime)
    host: Mapped[str | None] = mapped_column(Written)
    pid: Mapped[int | None]
    process_started: Mapped[str | None] = mapped_column(Written)
    resumes: Mapped[str | None] = mapped_column(Written)

    def job(self) -> Job:
        return Job(
            job_id=self.job_id,
            name=self.name,
            status=JobStatus(self.status),
            model=self.model,
            kind=JobKind(self.kind),
            workspace_id=self.workspace_id,
            config=self.config,
            error=self.error,
            error_said=self.error_said,
            created_at=self.created_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            host=self.host,
            pid=self.pid,
            process_started=self.process_started,
            resumes=self.resumes,
        )


_SUBMITTED = table("submissions", column("job_id"), column("owner"))
"""By its name: the module of that table stands on this one."""


def create_job(session: Session, job: Job) -> None:
    """Write a new job. `config` is stored as given: mask secrets before.

    Raises:
        ConflictError: the id is taken.
    """
    if session.get(JobRow, job.job_id) is not None:
        raise ConflictError(
            msg("there is a job {job_id!r} already", job_id=job.job_id), fix=msg("choose another job_id")
        )
    values = job.model_dump() | {"status": job.status.value, "kind": job.kind.value}
    session.add(JobRow(**values))
    session.flush()
    record_move(session, job.job_id, job.status, job.created_at)


def workspace_of(session: Session, job_id: str) -> str | None:
    """The workspace of a job; None where the job does not exist."""
    return session.scalar(select(JobRow.workspace_id).where(JobRow.job_id == job_id))


def get_job(session: Session, job_id: str, *, workspace_id: str | None = None) -> Job:
    """Raises:
    MissingError: no such job, or not in that workspace.
    """
    row = session.get(JobRow, job_id)
    if row is None or workspace_id not in (None, row.workspace_id):
        raise _missing(job_id)
    return row.job()


def list_jobs(
    session: Session,
    *,
    workspace_id: str | None = None,
    status: JobStatus | None = None,
    kind: JobKind = JobKind.TRAINING,
    after: str | None = None,
    limit: int = 50,
) -> Page[Job]:
    """Jobs of one kind, newest first. `after` is the `next` of the page before."""
    query = _matching(workspace_id, status, kind).limit(limit + 1)
    if after is not None:
        last = session.get(JobRow, after)
        if last is None:
            raise _missing(after)
        query = query.where(tuple_(JobRow.created_at, JobRow.job_id) < tuple_(last.created_at, last.job_id))
    rows = session.scalars(query).all()
    return page_of(rows, limit, item=JobRow.job, cursor=lambda row: row.job_id, after=after)


def numbered_jobs(
    session: Session,
    *,
    workspace_id: str,
    status: JobStatus | None = None,
    kind: JobKind = JobKind.TRAINING,
    page_no: int,
    page_size: int,
) -> tuple[list[Job], int]:
    """Page `page_no` (from 1) of a workspace's jobs of one kind, newest first, and how many there are: the
    form that DashScope's clients ask in."""
    query = _matching(workspace_id, status, kind)
    total = session.scalar(select(func.count()).select_from(query.order_by(None).subquery())) or 0
    rows = session.scalars(query.offset((page_no - 1) * page_size).limit(page_size))
    return [row.job() for row in rows], total


def count_jobs(session: Session) -> Counter[JobStatus]:
    """How many jobs there are of each status, in all workspaces."""
    counts = session.execute(select(JobRow.status, func.count()).group_by(JobRow.status))
    return Counter({JobStatus(status): count for status, count in counts})


def delete_job(session: Session, job_id: str) -> None:
    """Remove a finished job and all that belongs to it.

    Raises:
        MissingError: no such job. ConflictError: it has not ended.
    """
    row = session.get(JobRow, job_id)
    if row is None:
        raise _missing(job_id)
    if not JobStatus(row.status).final:
        raise ConflictError(
            msg(
                "job {job_id!r} is {status}; only a job that has ended can be deleted",
                job_id=job_id,
                status=row.status,
            ),
            fix=msg("cancel it first"),
        )
    session.execute(delete(JobRow).where(JobRow.job_id == job_id))


def name_output(session: Session, job_id: str, name: str) -> None:
    """Write under which name the job's model was published, where that is not the one it asked for.

    Raises:
        MissingError: no such job.
    """
    row = session.get(JobRow, job_id)
    if row is None:
        raise _missing(job_id)
    row.config = {**row.config, "tuned_model_name": name}


def _matching(workspace_id: str | None, status: JobStatus | None, kind: JobKind) -> Select[JobRow]:
    query = (
        select(JobRow)
        .where(JobRow.kind == kind.value)
        .order_by(JobRow.created_at.desc(), JobRow.job_id.desc())
    )
    if workspace_id is not None:
        query = query.where(JobRow.workspace_id == workspace_id)
    return query if status is None else query.where(JobRow.status == status.value)


def move_job(session: Session, job_id: str, status: JobStatus, *, error: str | None = None) -> Job:
    """Move a job to `status`; the first RUNNING stamps `started_at`, a final status `ended_at`. A `Message`
    error is kept in both languages.

    Raises:
        MissingError: no such job. ConflictError: `ALLOWED_MOVES` has no way from where it is.
    Concurrency:
        One statement checks and moves, so that of two conflicting moves one is refused.
    """
    sources = [source.value for source, targets in ALLOWED_MOVES.items() if status in targets]
    now = datetime.now(UTC)
    changes: dict[str, Any] = {"status": status.value}
    if error is not None:
        changes |= {"error": str(error), "error_said": as_json(error)}
    if status.final:
        changes["ended_at"] = now
    move = update(JobRow).where(JobRow.job_id == job_id, JobRow.status.in_(sources)).values(changes)
    moved = session.execute(
        move.returning(JobRow.job_id), execution_options={"synchronize_session": False}
    ).first()
    row = session.get(JobRow, job_id, populate_existing=True)
    if row is None:
        raise _missing(job_id)
    if moved is None:
        ways = ", ".join(sorted(ALLOWED_MOVES[JobStatus(row.status)])) or "nowhere, it is final"
        raise ConflictError(
            msg(
                "job {job_id!r} is {status} and cannot become {value}",
                job_id=job_id,
                status=row.status,
                value=status.value,
            ),
            fix=msg("from {status} it can go to: {ways}", status=row.status, ways=ways),
        )
    record_move(session, job_id, status, now)
    if status is JobStatus.RUNNING and row.started_at is None:
        row.started_at = now
    session.flush()
    return row.job()


def claim_job(session: Session, job_id: str, mark: ProcessMark, *, resumes: str | None = None) -> Job:
    """Note that the process of `mark` trains the job from now on, going on from job `resumes`, if any.

    Raises:
        StoreError: no such job, or one that has ended or that another live process trains.
    """
    row = session.get(JobRow, job_id)
    if row is None:
        raise _missing(job_id)
    if JobStatus(row.status).final:
        raise ConflictError(
            msg("job {job_id!r} has ended: it is {status}", job_id=job_id, status=row.status),
            fix=msg("start a new job"),
        )
    holder = _process_of(row)
    if holder is not None and holder != mark and not is_gone(holder):
        raise ConflictError(
            msg(
                "job {job_id!r} is trained by process {pid} on {host} already",
                job_id=job_id,
                pid=holder.pid,
                host=holder.host,
            ),
            fix=msg("wait for it, or end it"),
        )
    row.host, row.pid, row.process_started = mark.host, mark.pid, mark.started
    row.resumes = resumes or row.resumes
    session.flush()
    return row.job()


def fail_lost_jobs(session: Session, *, surely: str | None = None) -> list[Job]:
    """Move every job whose process is gone to FAILED, with the reason. Returns them.

    A job that no process has claimed is left alone, and so is one of another machine, of which nothing is
    known; except `surely`, which the caller knows to be gone. Submitted jobs are their server's to restart; a
    `strop run`'s are lost with it.
    """
    moving = [status.value for status in JobStatus if not status.final]
    found = session.execute(
        select(JobRow, _SUBMITTED.c.job_id, _SUBMITTED.c.owner)
        .outerjoin(_SUBMITTED, _SUBMITTED.c.job_id == JobRow.job_id)
        .where(JobRow.status.in_(moving))
    ).all()
    lost: list[Job] = []
    for row, submitted, owner in found:
        if submitted is not None and owner is None:
            continue
        marks = [mark for mark in (_process_of(row), _mark(owner)) if mark is not None]
        if marks and (row.job_id == surely or all(is_gone(mark) for mark in marks)):
            lost.append(move_job(session, row.job_id, JobStatus.FAILED, error=_lost(marks[0])))
    return lost


def _mark(text: str | None) -> ProcessMark | None:
    return None if text is None else ProcessMark.read(text)


def live_jobs(session: Session) -> list[Job]:
    """The jobs that a process of this machine trains right now."""
    rows = session.scalars(select(JobRow).where(JobRow.status == JobStatus.RUNNING.value)).all()
    here = this_process().host
    return [
        row.job()
        for row in rows
        if (mark := _process_of(row)) is not None and mark.host == here and not is_gone(mark)
    ]


def _lost(mark: ProcessMark) -> str:
    return msg(
        "its process {pid} on {host} ended without a word (killed, out of memory, or "
        "the machine went down)\n  fix: strop run JOB.yaml --resume with its folder "
        "goes on from the last checkpoint",
        pid=mark.pid,
        host=mark.host,
    )


def process_of(job: Job) -> ProcessMark | None:
    """The process that claimed a job; None while none has."""
    if job.host is None or job.pid is None or job.process_started is None:
        return None
    return ProcessMark(host=job.host, pid=job.pid, started=job.process_started)


def describe_job(session: Session, job_id: str, config: dict[str, Any]) -> None:
    """Write the configuration anew, once the machine has settled what was left to it. Mask secrets before.

    Raises:
        MissingError: no such job.
    """
    row = session.get(JobRow, job_id)
    if row is None:
        raise _missing(job_id)
    row.config = config


def unclaim_job(session: Session, job_id: str) -> None:
    """Forget the process of a job: it is gone, and another will come."""
    nobody = {"host": None, "pid": None, "process_started": None}
    session.execute(update(JobRow).where(JobRow.job_id == job_id).values(nobody))


def _process_of(row: JobRow) -> ProcessMark | None:
    if row.host is None or row.pid is None or row.process_started is None:
        return None
    return ProcessMark(host=row.host, pid=row.pid, started=row.process_started)


def _missing(job_id: str) -> MissingError:
    return MissingError(
        msg("no job {job_id!r} in this database", job_id=job_id),
        fix=msg("check the id, STROP_HOME and STROP_DATABASE_URL"),
    )


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


def jobs_that_resume(session: Session, job_id: str) -> list[str]:
    """The jobs that went on from this one."""
    query = select(JobRow.job_id).where(JobRow.resumes == job_id).order_by(JobRow.created_at)
    return list(session.scalars(query))
