"""A job's Details tab: state and history, configuration with origins, lineage, cost, events, actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, cast

import yaml
from fastapi import APIRouter, Query, Request
from sqlalchemy.orm import Session
from starlette.responses import RedirectResponse, Response

from strop.config.describing import told_origin
from strop.config.hyper_parameter_texts import about
from strop.console.access import local
from strop.console.drawings import Strip, strip
from strop.console.job_frame import JobHere, job_here, job_page
from strop.console.jobs import leaves
from strop.console.pages import BASE, LARGEST
from strop.console.requests import CallerHere, ServicesHere
from strop.diagnosis.texts import RULES
from strop.schema.finding import Finding
from strop.schema.job import Job, JobStatus
from strop.service import jobs
from strop.store.checkpoints import list_checkpoints
from strop.store.events import last_events
from strop.store.findings import list_findings
from strop.store.jobs import jobs_that_resume, moves_of
from strop.store.metrics import sum_of
from strop.store.models import models_of_job

router = APIRouter()

MASK = "***"
NUM_EVENTS = 40
_ACTIONS = {"cancel": jobs.cancel, "pause": jobs.pause, "resume": jobs.resume}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value of the resolved configuration, where it came from, and what it does (each English, Chinese)."""

    key: str
    value: Any
    origin: str
    about: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a job has used so far. None: not recorded."""

    tokens: float | None
    sampled_tokens: float | None
    trained_tokens: float | None
    device_s: float


@router.get("/jobs/{job_id}")
def details(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    before: Annotated[int | None, Query(ge=0, le=LARGEST)] = None,
) -> Response:
    with services.database.read() as session:
        here = job_here(session, job_id, caller)
        moves = moves_of(session, job_id) or _known_moves(here.job)
        events = last_events(session, job_id, limit=NUM_EVENTS + 1, before=before)
        lineage = {
            "resumes": here.job.resumes,
            "resumed_by": jobs_that_resume(session, job_id),
            "models": models_of_job(session, job_id),
            "num_checkpoints": len(list_checkpoints(session, job_id)),
        }
        cost = cost_of(session, job_id, moves)
        findings = list_findings(session, job_id)
    return job_page(
        request,
        services,
        here,
        "details",
        moves=moves,
        events=events[:NUM_EVENTS],
        older=events[NUM_EVENTS - 1].id if len(events) > NUM_EVENTS else None,
        lineage=lineage,
        cost=cost,
        settings=settings_of(here.job),
        findings=[(one, RULES.get(one.rule), _strips(one)) for one in reversed(findings)],
        datasets=_datasets(here.job.config),
        functions=here.job.config.get("functions", []),
        files=list(here.submission.files) if here.submission else [],
    )


def _datasets(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Files by their place in the job's folder, as its file names them.

    >>> files = [{"file_name": "/w/data/a.jsonl"}, {"file_name": "/b"}]
    >>> _datasets({"workspace_dir": "/w", "datasets": files})
    [{'file_name': 'data/a.jsonl'}, {'file_name': '/b'}]
    >>> _datasets({"datasets": files})[1]
    {'file_name': '/b'}
    """
    folder = config.get("workspace_dir")
    start = f"{folder}/" if folder else ""
    return [
        {**one, "file_name": str(one.get("file_name") or "").removeprefix(start)}
        for one in config.get("datasets", [])
    ]


def _strips(finding: Finding) -> list[Strip | None]:
    return [strip(one.points, one.healthy) for one in finding.evidence.curves]


@router.get("/jobs/{job_id}/state-and-progress")
def progress(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    with services.database.read() as session:
        here = job_here(session, job_id, caller)
    return job_page(request, services, here, "progress")


@router.post("/jobs/{job_id}/{action}")
def act(
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    action: Literal["cancel", "pause", "resume"],
    back: Annotated[str, Query(max_length=2000)] = "",
) -> Response:
    _ACTIONS[action](services, caller, job_id)
    return RedirectResponse(local(back or f"{BASE}/jobs/{job_id}"), status_code=303)


@router.get("/jobs/{job_id}/job.yaml")
def clone(services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    """The job as a file to change and submit again."""
    with services.database.read() as session:
        here = job_here(session, job_id, caller)
    headers = {"content-disposition": f'attachment; filename="{job_id}.yaml"'}
    return Response(job_yaml(here), media_type="application/yaml; charset=utf-8", headers=headers)


def job_yaml(here: JobHere) -> str:
    """What was set, without defaults and secrets, in the form of `job.yaml`."""
    if here.submission is not None:
        values = dict(here.submission.config)
        for function in values.get("functions", []):
            environment = function.get("runtime", {}).get("env")
            if environment:
                function["runtime"]["env"] = dict.fromkeys(environment, MASK)
        webhook = values.get("diagnosis", {}).get("webhook")
        if webhook:
            webhook.update(dict.fromkeys(webhook, MASK))
    else:
        values = _without_defaults(here.job.config)
    values.pop("origins", None)
    text = yaml.safe_dump(values, allow_unicode=True, sort_keys=False, width=100)
    head = f"# {here.job.job_id}\n"
    if MASK in text:
        head += f"# {MASK}: a secret that is not kept; write it again\n"
    return head + text


def settings_of(job: Job) -> dict[str, list[Setting]]:
    """The resolved configuration by section."""
    origins: dict[str, str] = job.config.get("origins", {})
    sections: dict[str, list[Setting]] = {}
    for key, value in leaves(job.config):
        name = key.rpartition(".")[2]
        section = (
            "training.hyper_parameters" if ".hyper_parameters." in key else key.split(".")[0].split("[")[0]
        )
        one = Setting(
            key=key.removeprefix(f"{section}."),
            value=value,
            origin=told_origin(origins.get(key, "")),
            about=about(name) if ".hyper_parameters." in key else ("", ""),
        )
        sections.setdefault(section, []).append(one)
    return sections


def cost_of(session: Session, job_id: str, moves: Sequence[tuple[JobStatus, datetime]]) -> Cost:
    return Cost(
        tokens=sum_of(session, job_id, "perf/total_num_tokens"),
        sampled_tokens=sum_of(session, job_id, "perf/sampled_tokens"),
        trained_tokens=sum_of(session, job_id, "perf/trained_tokens"),
        device_s=seconds_at_work(moves, datetime.now(UTC)),
    )


def seconds_at_work(moves: Sequence[tuple[JobStatus, datetime]], now: datetime) -> float:
    """How long a job held its device: while it was RUNNING or CANCELING.

    >>> at = [datetime(2026, 3, 1, 12, minute, tzinfo=UTC) for minute in (0, 10, 30)]
    >>> seconds_at_work([(JobStatus.RUNNING, at[0]), (JobStatus.SUSPENDED, at[1])], at[2])
    600.0
    """
    ends = [at for _, at in moves[1:]] + [now]
    working = (JobStatus.RUNNING, JobStatus.CANCELING)
    spans = [
        (end - at).total_seconds() for (status, at), end in zip(moves, ends, strict=True) if status in working
    ]
    return float(sum(spans))


def _known_moves(job: Job) -> list[tuple[JobStatus, datetime]]:
    """Of a job from before moves were recorded."""
    known = [(JobStatus.PENDING, job.created_at)]
    if job.started_at is not None:
        known.append((JobStatus.RUNNING, job.started_at))
    if job.ended_at is not None:
        known.append((job.status, job.ended_at))
    return known


def _without_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """Leave out what nobody set, where the job knows; else what is null."""
    origins: dict[str, str] = config.get("origins", {})

    def kept(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            items: dict[str, Any] = {
                key: kept(item, f"{path}.{key}" if path else key)
                for key, item in cast("dict[str, Any]", value).items()
                if key != "origins"
            }
            return {key: item for key, item in items.items() if item not in (None, {}, [])}
        if isinstance(value, list):
            items_in = cast("list[Any]", value)
            return [kept(item, f"{path}[{index}]") for index, item in enumerate(items_in)]
        origin = origins.get(path, "")
        return None if origin.startswith("default") or (origins and not origin) else value

    return kept(config, "")
