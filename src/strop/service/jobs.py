"""Jobs: create, list, cancel, pause, resume, delete. The work is done by trainers that the supervisor starts.

A job comes through any door, or from the console, as a `NewJob`, and is written by `service.job_record`.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from strop.config.job import JobConfig
from strop.errors import ConflictError
from strop.locales import msg
from strop.schema.access import Caller
from strop.schema.job import Event, Job, JobKind, JobStatus
from strop.schema.submission import Wanted
from strop.service.job_plan import JobPlan, NewJob, Planner, lay_out_files
from strop.service.job_record import JobRecord, new_job_id, record_job
from strop.service.services import Services
from strop.store.events import record_event
from strop.store.jobs import delete_job, get_job, move_job, numbered_jobs
from strop.store.models import usable_model
from strop.store.published import check_free
from strop.store.submissions import submissions_of, want


def submit(services: Services, caller: Caller, new: NewJob, *, request: Mapping[str, Any]) -> JobRecord:
    """Check a job, lay out its rows, queue it. `request` is kept as the client sent it.

    Raises:
        ConfigError, DataError: everything that is wrong with it and its rows. ModelError: no such model.
        ConflictError: its model's name is taken.
    """
    job_id = new_job_id()
    with services.database.read() as session:
        for model in filter(None, (new.model, new.teacher_model)):
            usable_model(session, model, workspace_id=caller.workspace_id)
        if new.output_name is not None:
            check_free(session, new.output_name)
    with folder_of_new(services, job_id) as folder:
        config, plan = prepare(
            services, caller, new, folder=folder, default_output=_output_name(new.model, job_id)
        )
        return create(services, caller, job_id, config, plan, model=new.model, request=request)


@contextmanager
def folder_of_new(services: Services, job_id: str) -> Generator[Path]:
    """The folder of a job that is being created; it goes again if the block fails."""
    folder = services.folder_of(job_id)
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def prepare(
    services: Services, caller: Caller, new: NewJob, *, folder: Path, default_output: str
) -> tuple[JobConfig, JobPlan]:
    """Look up all that a job names, lay out its rows and make the flow's own checks.

    Raises:
        ConfigError, DataError: everything that is wrong with it and its rows.
    """
    settings = services.settings
    with services.database.read() as session:
        planner = Planner(session, services.blobs, settings.home, settings.limits, caller.workspace_id)
        plan = planner.plan(new, folder=folder, default_output=default_output)
        lay_out_files(session, services.blobs, plan.files, folder=folder, workspace_id=caller.workspace_id)
    folder.mkdir(parents=True, exist_ok=True)
    return plan.with_origins(services.flow.check(plan.job)), plan


def create(
    services: Services,
    caller: Caller,
    job_id: str,
    config: JobConfig,
    plan: JobPlan,
    *,
    model: str,
    request: Mapping[str, Any],
    name: str | None = None,
    kind: JobKind = JobKind.TRAINING,
) -> JobRecord:
    """Write a job that was checked, and let the supervisor look."""
    made = record_job(
        services.database,
        job_id,
        config,
        services.flow.describe(config),
        request=request,
        name=name,
        model=model,
        kind=kind,
        workspace_id=caller.workspace_id,
        creator=caller.key_name,
        plan=plan,
    )
    services.supervisor.wake()
    return made


def list_jobs(
    services: Services,
    caller: Caller,
    *,
    page_no: int,
    page_size: int,
    status: JobStatus | None = None,
    kind: JobKind = JobKind.TRAINING,
) -> tuple[list[JobRecord], int]:
    """A page of the workspace's jobs, newest first, and how many there are."""
    with services.database.read() as session:
        jobs, total = numbered_jobs(
            session,
            workspace_id=caller.workspace_id,
            status=status,
            kind=kind,
            page_no=page_no,
            page_size=page_size,
        )
        return _records(session, jobs), total


def get(services: Services, caller: Caller, job_id: str) -> JobRecord:
    """Raises MissingError: no such job in the caller's workspace."""
    with services.database.read() as session:
        return _records(session, [get_job(session, job_id, workspace_id=caller.workspace_id)])[0]


def cancel(services: Services, caller: Caller, job_id: str) -> JobRecord:
    """End a job; a running one saves a checkpoint first.

    Raises:
        MissingError: no such job here. ConflictError: it has ended, or no server supervises it.
    """
    with services.database.write() as session:
        job = _supervised(session, caller, job_id, may_cancel=True)
        if job.status is not JobStatus.CANCELING:
            running = job.status is JobStatus.RUNNING
            move_job(session, job_id, JobStatus.CANCELING if running else JobStatus.CANCELED)
            want(session, job_id, Wanted.CANCEL)
            note = msg("{key_name} asked to cancel", key_name=caller.key_name)
            _record(session, job_id, "cancel_asked", note)
    services.supervisor.wake()
    return get(services, caller, job_id)


def pause(services: Services, caller: Caller, job_id: str) -> JobRecord:
    """Let a job rest; a running one saves a checkpoint first.

    Raises:
        MissingError: no such job here. ConflictError: it cannot be paused now, or no server supervises it.
    """
    with services.database.write() as session:
        job = _supervised(session, caller, job_id)
        if job.status in (JobStatus.PENDING, JobStatus.QUEUING):
            move_job(session, job_id, JobStatus.SUSPENDED)
        elif job.status not in (JobStatus.RUNNING, JobStatus.SUSPENDED):
            raise ConflictError(
                msg("job {job_id!r} is {status} and cannot be paused", job_id=job_id, status=job.status)
            )
        want(session, job_id, Wanted.PAUSE)
        note = msg("{key_name} asked to pause", key_name=caller.key_name)
        _record(session, job_id, "pause_asked", note)
    services.supervisor.wake()
    return get(services, caller, job_id)


def resume(services: Services, caller: Caller, job_id: str) -> JobRecord:
    """Let a paused job go on from its newest checkpoint.

    Raises:
        MissingError: no such job here. ConflictError: it is not paused, or no server supervises it.
    """
    with services.database.write() as session:
        job = _supervised(session, caller, job_id)
        if job.status is JobStatus.SUSPENDED:
            move_job(session, job_id, JobStatus.QUEUING)
        elif job.status not in (JobStatus.PENDING, JobStatus.QUEUING, JobStatus.RUNNING):
            raise ConflictError(
                msg(
                    "job {job_id!r} is {status}; only a paused job can be resumed",
                    job_id=job_id,
                    status=job.status,
                ),
                fix=msg("start a new job, with a published checkpoint's name as its model"),
            )
        want(session, job_id, Wanted.RUN)
        note = msg("{key_name} asked to resume", key_name=caller.key_name)
        _record(session, job_id, "resume_asked", note)
    services.supervisor.wake()
    return get(services, caller, job_id)


def delete(services: Services, caller: Caller, job_id: str) -> None:
    """Delete an ended job with its checkpoints; published models stay.

    Raises:
        MissingError: no such job here. ConflictError: it has not ended.
    """
    with services.database.write() as session:
        get_job(session, job_id, workspace_id=caller.workspace_id)
        delete_job(session, job_id)
    shutil.rmtree(services.folder_of(job_id), ignore_errors=True)


def _output_name(model: str, job_id: str) -> str:
    """What the trained model is called where nobody named it."""
    stem = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in model
    )
    return f"{stem.strip('._-')[-80:].lstrip('._-') or 'model'}-{job_id}"


def _records(session: Session, jobs: Sequence[Job]) -> list[JobRecord]:
    submissions = submissions_of(session, [job.job_id for job in jobs])
    return [JobRecord(job=job, submission=submissions.get(job.job_id)) for job in jobs]


def _supervised(session: Session, caller: Caller, job_id: str, *, may_cancel: bool = False) -> Job:
    """A job that this server supervises. One of a `strop run` can only be canceled.

    Raises:
        MissingError: no such job here. ConflictError: it is a `strop run` of its own.
    """
    job = get_job(session, job_id, workspace_id=caller.workspace_id)
    submission = submissions_of(session, [job_id]).get(job_id)
    if submission is None or (submission.owner is not None and not may_cancel):
        raise ConflictError(
            msg("job {job_id!r} is a `strop run` of its own", job_id=job_id),
            fix=msg("cancel it, or press Ctrl-C where it runs; strop run --resume continues it"),
        )
    return job


def _record(session: Session, job_id: str, kind: str, message: str) -> None:
    record_event(session, Event(job_id=job_id, kind=kind, message=message, created_at=datetime.now(UTC)))
