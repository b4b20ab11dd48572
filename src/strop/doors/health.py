"""`/healthz` and `/metrics`: whether the server works, and counts of what it has. Open to everybody."""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter
from sqlalchemy import text
from starlette.responses import JSONResponse, PlainTextResponse, Response

from strop import __version__
from strop.doors.fleet_metrics import fleet_text
from strop.doors.instance_metrics import instance_text
from strop.doors.requests import ServicesHere
from strop.schema.job import JobStatus
from strop.store.jobs import count_jobs

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Whether the server and its database answer")
def healthz(services: ServicesHere) -> Response:
    with services.database.read() as session:
        session.execute(text("SELECT 1"))
    return JSONResponse({"status": "healthy", "version": __version__})


@router.get("/metrics", summary="Counts in Prometheus's text form", response_class=PlainTextResponse)
def metrics(services: ServicesHere) -> Response:
    with services.database.read() as session:
        jobs = count_jobs(session)
    told = _text(jobs) + fleet_text(services.fleets.all()) + instance_text(services.instances.readings())
    return Response(told, media_type="text/plain; version=0.0.4")


def _text(jobs: Counter[JobStatus]) -> str:
    lines = ["# HELP strop_jobs Jobs by status.", "# TYPE strop_jobs gauge"]
    lines += [f'strop_jobs{{status="{status.value}"}} {jobs[status]}' for status in JobStatus]
    return "\n".join(lines) + "\n"
