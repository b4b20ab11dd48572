"""`/fine-tunes`: submit, stop, go on, delete. The work is done by trainers that the supervisor starts."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from sqlalchemy.orm import Session
from starlette.responses import Response

from strop.bilingual import both
from strop.config.job import JobConfig
from strop.doors.dashscope.job_request import JobAsked, read_job
from strop.doors.dashscope.paging import PageHere
from strop.doors.dashscope.replies import language_of, output
from strop.doors.json_body import JsonRoute
from strop.doors.services import CallerHere, Services, ServicesHere
from strop.errors import ConflictError
from strop.schema.access import Caller
from strop.schema.job import Event, Job, JobStatus
from strop.schema.submission import Submission, Wanted
from strop.service.job_plan import JobPlan, Planner, lay_out_files, remove_folder
from strop.service.job_views import job_shown
from strop.store.events import record_event
from strop.store.jobs import create_job, delete_job, get_job, move_job, numbered_jobs
from strop.store.models import usable_model
from strop.store.published import check_free
from strop.store.submissions import create_submission, get_submission, submissions_of, want

router = APIRouter(route_class=JsonRoute, prefix="/fine-tunes", tags=["fine-tunes"])


@router.post("", summary="Submit a job")
def create(
    request: Request, services: ServicesHere, caller: CallerHere, body: Annotated[dict[str, Any], Body()]
) -> Response:
    asked = read_job(body)
    job_id = new_job_id()
    folder = services.settings.home / "jobs" / job_id
    try:
        config, plan = _checked(services, caller, asked, job_id)
        job = Job(
            job_id=job_id,
            name=config.name,
            status=JobStatus.PENDING,
            model=asked.model,
            workspace_id=caller.workspace_id,
            config=services.flow.describe(config),
            created_at=datetime.now(UTC),
        )
        submission = Submission(
            job_id=job_id,
            creator=caller.key_name,
            request=body,
            config=config.model_dump(mode="json", exclude_unset=True),
            bundles=plan.bundles,
            layers=plan.layers,
            files=plan.files,
        )
        with services.database.write() as session:
            create_job(session, job)
            create_submission(session, submission)
            for note in plan.notes:
                record_event(session, _event(job_id, "not_honoured", note))
    except BaseException:
        remove_folder(folder)
        raise
    services.wake()
    return output(request, job_shown(job, submission, language_of(request)))


@router.get("", summary="List jobs, newest first")
def list_jobs(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    page: PageHere,
    status: JobStatus | None = None,
) -> Response:
    with services.database.read() as session:
        jobs, total = numbered_jobs(
            session,
            workspace_id=caller.workspace_id,
            status=status,
            page_no=page.page_no,
            page_size=page.page_size,
        )
        submissions = submissions_of(session, [job.job_id for job in jobs])
    language = language_of(request)
    listed = [job_shown(job, submissions.get(job.job_id), language) for job in jobs]
    return output(request, page.filled(total, jobs=listed))


@router.get("/{job_id}", summary="One job")
def get(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    with services.database.read() as session:
        job = get_job(session, job_id, workspace_id=caller.workspace_id)
        submission = submissions_of(session, [job_id]).get(job_id)
    return output(request, job_shown(job, submission, language_of(request)))


@router.post("/{job_id}/cancel", summary="End a job; a running one saves a checkpoint first")
def cancel(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    cancel_job(services, caller, job_id)
    return _told(request, services, caller, job_id)


@router.post("/{job_id}/pause", summary="Let a job rest; a running one saves a checkpoint first")
def pause(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    with services.database.write() as session:
        job = _supervised(session, caller, job_id)
        if job.status in (JobStatus.PENDING, JobStatus.QUEUING):
            move_job(session, job_id, JobStatus.SUSPENDED)
        elif job.status not in (JobStatus.RUNNING, JobStatus.SUSPENDED):
            raise ConflictError(f"job {job_id!r} is {job.status} and cannot be paused")
        want(session, job_id, Wanted.PAUSE)
        record_event(
            session,
            _event(
                job_id,
                "pause_asked",
                both(f"{caller.key_name} asked to pause", f"{caller.key_name} 要求暂停"),
            ),
        )
    services.wake()
    return _told(request, services, caller, job_id)


@router.post("/{job_id}/resume", summary="Let a paused job go on from its newest checkpoint")
def resume(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    with services.database.write() as session:
        job = _supervised(session, caller, job_id)
        if job.status is JobStatus.SUSPENDED:
            move_job(session, job_id, JobStatus.QUEUING)
        elif job.status not in (JobStatus.PENDING, JobStatus.QUEUING, JobStatus.RUNNING):
            raise ConflictError(
                f"job {job_id!r} is {job.status}; only a paused one goes on",
                fix="start a new job, with a published checkpoint's name as its model",
            )
        want(session, job_id, Wanted.RUN)
        record_event(
            session,
            _event(
                job_id,
                "resume_asked",
                both(f"{caller.key_name} asked to go on", f"{caller.key_name} 要求继续"),
            ),
        )
    services.wake()
    return _told(request, services, caller, job_id)


@router.delete("/{job_id}", summary="Delete an ended job with its checkpoints; published models stay")
def delete(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    with services.database.write() as session:
        get_job(session, job_id, workspace_id=caller.workspace_id)
        delete_job(session, job_id)
    remove_folder(services.settings.home / "jobs" / job_id)
    return output(request, {"status": "success", "job_id": job_id})


def cancel_job(services: Services, caller: Caller, job_id: str) -> None:
    """Ask a job to end.

    Raises:
        MissingError: no such job here. ConflictError: it has ended, or nobody looks after it.
    """
    with services.database.write() as session:
        job = _supervised(session, caller, job_id, may_cancel=True)
        if job.status is not JobStatus.CANCELING:
            running = job.status is JobStatus.RUNNING
            move_job(session, job_id, JobStatus.CANCELING if running else JobStatus.CANCELED)
            want(session, job_id, Wanted.CANCEL)
            record_event(
                session,
                _event(
                    job_id,
                    "cancel_asked",
                    both(f"{caller.key_name} asked to cancel", f"{caller.key_name} 要求取消"),
                ),
            )
    services.wake()


def new_job_id(prefix: str = "ft") -> str:
    """Sortable by time; the rest cannot be guessed."""
    return f"{prefix}-{datetime.now(UTC):%Y%m%d%H%M%S}-{secrets.token_hex(8)}"


def _checked(services: Services, caller: Caller, asked: JobAsked, job_id: str) -> tuple[JobConfig, JobPlan]:
    settings = services.settings
    folder = settings.home / "jobs" / job_id
    with services.database.read() as session:
        for model in filter(None, (asked.model, asked.teacher_model)):
            usable_model(session, model, workspace_id=caller.workspace_id)
        if asked.output_name is not None:
            check_free(session, asked.output_name)
        planner = Planner(session, services.blobs, settings.home, settings.limits, caller.workspace_id)
        plan = planner.plan(asked, folder=folder, default_output=_output_name(asked.model, job_id))
        lay_out_files(session, services.blobs, plan.files, folder=folder, workspace_id=caller.workspace_id)
    folder.mkdir(parents=True, exist_ok=True)
    return plan.told(services.flow.check(plan.job)), plan


def _output_name(model: str, job_id: str) -> str:
    stem = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in model
    )
    return f"{stem.strip('._-')[-80:].lstrip('._-') or 'model'}-{job_id}"


def _supervised(session: Session, caller: Caller, job_id: str, *, may_cancel: bool = False) -> Job:
    """A job that this server looks after. One of a `strop run` can only be canceled.

    Raises:
        MissingError: no such job here. ConflictError: it is a run of its own.
    """
    job = get_job(session, job_id, workspace_id=caller.workspace_id)
    submission = submissions_of(session, [job_id]).get(job_id)
    if submission is None or (submission.owner is not None and not may_cancel):
        raise ConflictError(
            f"job {job_id!r} is a `strop run` of its own",
            fix="cancel it, or press Ctrl-C where it runs; strop run --resume goes on with it",
        )
    return job


def _told(request: Request, services: Services, caller: Caller, job_id: str) -> Response:
    with services.database.read() as session:
        job = get_job(session, job_id, workspace_id=caller.workspace_id)
        return output(request, job_shown(job, get_submission(session, job_id), language_of(request)))


def _event(job_id: str, kind: str, message: str) -> Event:
    return Event(job_id=job_id, kind=kind, message=message, created_at=datetime.now(UTC))
