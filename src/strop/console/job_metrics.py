"""A job's Metrics tab: charts by group, and the curves that its script asks for as JSON or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Generator
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from strop.console.charts import ark_chart_groups, chart_groups
from strop.console.job_frame import job_here, job_page
from strop.console.pages import LARGEST
from strop.console.requests import CallerHere, ServicesHere
from strop.errors import RequestError
from strop.locales import msg
from strop.store.jobs import find_jobs, get_job
from strop.store.metrics import last_step, metric_names, step_metrics, thinned_curves
from strop.tracing.ark_view import by_ark_name

router = APIRouter()

MAX_NAMES = 60
"""Curves in one answer; a page asks for those that are in sight."""

MAX_POINTS = 2000

Naming = Literal["strop", "ark"]


@router.get("/jobs/{job_id}/metrics")
def metrics_page(
    request: Request, services: ServicesHere, caller: CallerHere, job_id: str, naming: Naming = "strop"
) -> Response:
    with services.database.read() as session:
        here = job_here(session, job_id, caller)
        names = metric_names(session, job_id)
        others = find_jobs(session, workspace_id=caller.workspace_id, limit=50).items
    grouped = ark_chart_groups if naming == "ark" else chart_groups
    return job_page(
        request,
        services,
        here,
        "metrics",
        groups=grouped(names, str(here.hyper_parameters.get("algorithm", ""))),
        naming=naming,
        others=[job for job in others if job.job_id != job_id],
        num_names=len(names),
    )


@router.get("/curves")
def curves(
    services: ServicesHere,
    caller: CallerHere,
    job: Annotated[str, Query(max_length=200)],
    names: Annotated[str, Query(max_length=8000)],
    since: Annotated[int, Query(ge=0, le=LARGEST)] = 0,
    points: Annotated[int, Query(ge=10, le=MAX_POINTS)] = 600,
) -> Response:
    wanted = [name for name in names.split(",") if name]
    if len(wanted) > MAX_NAMES:
        raise RequestError(
            msg("{num_wanted} curves at once", num_wanted=len(wanted)),
            fix=msg("ask for at most {max_names}", max_names=MAX_NAMES),
        )
    with services.database.read() as session:
        get_job(session, job, workspace_id=caller.workspace_id)
        found = thinned_curves(session, job, wanted, since_step=since, num_points=points)
        last = last_step(session, job)
    body = {"job": job, "last": last, "curves": {name: _columns(curve) for name, curve in found.items()}}
    return Response(orjson.dumps(body), media_type="application/json")


def _columns(curve: object) -> dict[str, object]:
    """One point a step needs no extremes of its own."""
    columns = {name: getattr(curve, name) for name in ("steps", "mean", "low", "high")}
    if columns["low"] == columns["high"]:
        del columns["low"], columns["high"]
    return columns


@router.get("/jobs/{job_id}/metrics.csv")
def download(services: ServicesHere, caller: CallerHere, job_id: str, naming: Naming = "strop") -> Response:
    """Every value of every curve: `metric,step,value`."""
    with services.database.read() as session:
        get_job(session, job_id, workspace_id=caller.workspace_id)
        names = metric_names(session, job_id)
    shown = by_ark_name(names) if naming == "ark" else {name: name for name in names}

    def lines() -> Generator[str]:
        yield "metric,step,value\n"
        for title, name in shown.items():
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            with services.database.read() as session:
                points = step_metrics(session, job_id, [name]).get(name, [])
            writer.writerows((title, step, value) for step, value in points)
            yield text.getvalue()

    headers = {"content-disposition": f'attachment; filename="{job_id}-metrics.csv"'}
    return StreamingResponse(lines(), media_type="text/csv", headers=headers)
