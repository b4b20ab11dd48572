"""The list of jobs, and several side by side: which settings differ, how their curves go."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from strop.console.charts import chart_groups
from strop.console.job_frame import JobHere, job_here, progress_of
from strop.console.pages import BASE, page
from strop.console.requests import CallerHere, ServicesHere
from strop.schema.job import JobStatus
from strop.store.jobs import find_jobs
from strop.store.metrics import metric_names
from strop.store.submissions import submissions_of

router = APIRouter()

PAGE_SIZE = 30
MAX_COMPARED = 6


@router.get("/jobs")
def list_page(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    q: Annotated[str, Query(max_length=200)] = "",
    status: Annotated[str, Query(max_length=20)] = "",
    after: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    statuses = [one for one in JobStatus if one.value == status]
    with services.database.read() as session:
        found = find_jobs(
            session,
            workspace_id=caller.workspace_id,
            statuses=statuses,
            words=q.split(),
            after=after,
            limit=PAGE_SIZE,
        )
        submissions = submissions_of(session, [job.job_id for job in found.items])
        rows = [
            JobHere(job=job, submission=submissions.get(job.job_id), progress=progress_of(session, job))
            for job in found.items
        ]
    return page(
        request,
        "jobs.html",
        rows=rows,
        q=q,
        status=status,
        statuses=list(JobStatus),
        more=found.next if found.more else None,
        first=after is None,
        key_file=str(services.settings.home / "api_key"),
    )


@router.get("/jobs/{job_id}/state")
def state(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    """The cells of a list's row that change while a job works."""
    with services.database.read() as session:
        here = job_here(session, job_id, caller)
    return page(request, "_job_state.html", row=here)


@router.get("/compare")
def compare(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job: Annotated[list[str] | None, Query()] = None,
) -> Response:
    wanted = list(dict.fromkeys(job or []))[:MAX_COMPARED]
    if len(wanted) < 2:
        return RedirectResponse(f"{BASE}/jobs", status_code=303)
    with services.database.read() as session:
        jobs = [job_here(session, job_id, caller) for job_id in wanted]
        names = sorted({name for job_id in wanted for name in metric_names(session, job_id)})
    algorithm = str(jobs[0].hyper_parameters.get("algorithm", ""))
    return page(
        request,
        "compare.html",
        jobs=jobs,
        differences=differences([one.job.config for one in jobs]),
        groups=chart_groups(names, algorithm),
    )


def differences(configs: list[dict[str, Any]]) -> list[tuple[str, list[Any]]]:
    """The settings that are not the same in all, by dotted key.

    >>> differences([{"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}}])
    [('b.c', [2, 3])]
    """
    flat = [dict(leaves(config)) for config in configs]
    keys = list(dict.fromkeys(key for one in flat for key in one))
    rows = [(key, [one.get(key) for one in flat]) for key in keys]
    return [(key, values) for key, values in rows if any(value != values[0] for value in values)]


def leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Every plain value by dotted key; where each came from is left out.

    >>> leaves({"a": [{"b": 1}], "origins": {"a": "x"}})
    [('a[0].b', 1)]
    """
    found: list[tuple[str, Any]] = []
    if isinstance(value, dict) and value:
        for key, item in cast("dict[str, Any]", value).items():
            if path or key != "origins":
                found += leaves(item, f"{path}.{key}" if path else key)
        return found
    if isinstance(value, list) and value:
        for index, item in enumerate(cast("list[Any]", value)):
            found += leaves(item, f"{path}[{index}]")
        return found
    return [(path, value)]
