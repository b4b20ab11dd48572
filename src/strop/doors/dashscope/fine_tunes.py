"""`/fine-tunes`: submit, list, cancel, pause, resume, delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from starlette.responses import Response

from strop.doors.dashscope.job_replies import job_reply
from strop.doors.dashscope.job_request import read_job
from strop.doors.dashscope.new_jobs import new_job
from strop.doors.dashscope.paging import PageHere
from strop.doors.dashscope.replies import language_of, output
from strop.doors.json_body import JsonRoute
from strop.doors.requests import CallerHere, ServicesHere
from strop.schema.job import JobStatus
from strop.service import jobs
from strop.service.job_record import JobRecord

router = APIRouter(route_class=JsonRoute, prefix="/fine-tunes", tags=["fine-tunes"])


@router.post("", summary="Submit a job")
def create(
    request: Request, services: ServicesHere, caller: CallerHere, body: Annotated[dict[str, Any], Body()]
) -> Response:
    return _job(request, jobs.submit(services, caller, new_job(read_job(body)), request=body))


@router.get("", summary="List jobs, newest first")
def list_jobs(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    page: PageHere,
    status: JobStatus | None = None,
) -> Response:
    found, total = jobs.list_jobs(
        services, caller, page_no=page.page_no, page_size=page.page_size, status=status
    )
    language = language_of(request)
    return output(request, page.filled(total, jobs=[job_reply(one, language) for one in found]))


@router.get("/{job_id}", summary="One job")
def get(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    return _job(request, jobs.get(services, caller, job_id))


@router.post("/{job_id}/cancel", summary="End a job; a running one saves a checkpoint first")
def cancel(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    return _job(request, jobs.cancel(services, caller, job_id))


@router.post("/{job_id}/pause", summary="Let a job rest; a running one saves a checkpoint first")
def pause(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    return _job(request, jobs.pause(services, caller, job_id))


@router.post("/{job_id}/resume", summary="Let a paused job go on from its newest checkpoint")
def resume(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    return _job(request, jobs.resume(services, caller, job_id))


@router.delete("/{job_id}", summary="Delete an ended job with its checkpoints; published models stay")
def delete(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    jobs.delete(services, caller, job_id)
    return output(request, {"status": "success", "job_id": job_id})


def _job(request: Request, record: JobRecord) -> Response:
    return output(request, job_reply(record, language_of(request)))
