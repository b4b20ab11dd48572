"""`POST /runs`: a job file of this machine, for the one process that keeps this private server.

Other than a job of `/fine-tunes`, it is trained from where its code and rows lie; nothing is copied.
"""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter, Request
from starlette.responses import Response

from strop.doors.dashscope.fine_tunes import new_job_id
from strop.doors.dashscope.replies import language_of, output
from strop.doors.json_body import JsonRoute
from strop.doors.services import CallerHere, ServicesHere
from strop.schema.job import Job, JobStatus
from strop.schema.submission import LocalRun, Submission
from strop.service.job_views import job_shown
from strop.store.jobs import create_job
from strop.store.submissions import create_submission

router = APIRouter(route_class=JsonRoute, prefix="/runs", tags=["runs"])


@router.post("", summary="Train a job file of this machine")
def create(request: Request, services: ServicesHere, caller: CallerHere, asked: LocalRun) -> Response:
    config = services.flow.load(asked)
    job = Job(
        job_id=new_job_id(),
        name=config.name,
        status=JobStatus.PENDING,
        model=config.model.name,
        workspace_id=caller.workspace_id,
        config=services.flow.describe(config),
        created_at=datetime.now(UTC),
    )
    submission = Submission(
        job_id=job.job_id,
        creator=caller.key_name,
        request=asked.model_dump(mode="json"),
        config=config.model_dump(mode="json", exclude_unset=True),
        owner=services.settings.owner,
    )
    with services.database.write() as session:
        create_job(session, job)
        create_submission(session, submission)
    services.wake()
    return output(request, job_shown(job, submission, language_of(request)))
