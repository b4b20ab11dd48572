"""`/healthz` and `/metrics`: whether the server works, and counts of what it has. Open to everybody."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy import text as sql
from starlette.responses import JSONResponse, PlainTextResponse, Response

from strop import __version__
from strop.doors.prometheus import prometheus_text
from strop.doors.requests import ServicesHere
from strop.store.jobs import count_jobs

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Whether the server and its database answer")
def healthz(services: ServicesHere) -> Response:
    with services.database.read() as session:
        session.execute(sql("SELECT 1"))
    return JSONResponse({"status": "healthy", "version": __version__})


@router.get("/metrics", summary="Counts in Prometheus's text form", response_class=PlainTextResponse)
def metrics(services: ServicesHere) -> Response:
    with services.database.read() as session:
        jobs = count_jobs(session)
    text = prometheus_text(jobs, services.fleets.all(), services.instances.readings())
    return Response(text, media_type="text/plain; version=0.0.4")
