"""`/fine-tunes/{job}/...`: what a job said and made, from its logs to its checkpoints, and a live stream."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from strop.doors.dashscope.job_replies import (
    checkpoint_reply,
    event_reply,
    job_reply,
    line_text,
    saved_reply,
)
from strop.doors.dashscope.replies import language_of, output
from strop.doors.documented import EVENTS
from strop.doors.event_stream import EventStream
from strop.doors.json_body import JsonRoute
from strop.doors.requests import CallerHere, ServicesHere
from strop.schema.function import TaskStatus
from strop.schema.job import JobStatus, Progress
from strop.schema.responses import without_nulls
from strop.service import jobs
from strop.service.job_record import JobRecord
from strop.service.services import Services
from strop.service.trajectories import trajectory_values
from strop.store.checkpoints import best_checkpoint, list_checkpoints
from strop.store.database import Database
from strop.store.events import find_progress, list_events
from strop.store.jobs import get_job
from strop.store.logs import numbered_lines
from strop.store.metrics import metric_names, step_metrics
from strop.store.submissions import submissions_of
from strop.store.tables import Page
from strop.store.trajectories import get_trajectory, list_trajectories
from strop.tracing.ark_view import by_ark_name

router = APIRouter(route_class=JsonRoute, prefix="/fine-tunes/{job_id}", tags=["fine-tunes"])

_POLL_S = 0.5
_LAST_EVENTS = ("published", "not_published", "result")
"""What comes after the last step and its checkpoint; the rest comes before what it explains."""
_KEEP_ALIVE_S = 15.0

Cursor = Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$")]
Step = Annotated[int | None, Query(ge=0, le=2**31 - 1)]
Word = Annotated[str | None, Query(max_length=1024)]


@router.get("/logs", summary="What the job's processes printed")
def logs(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 1,
    line: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> Response:
    with services.database.read() as session:
        get_job(session, job_id, workspace_id=caller.workspace_id)
        lines, total = numbered_lines(session, job_id, offset=max(1, offset), limit=line)
    return output(request, {"total": total, "logs": [line_text(one) for one in lines]})


@router.get("/events", summary="What a person should know of the job, oldest first")
def events(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    kind: Word = None,
    after: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    with services.database.read() as session:
        get_job(session, job_id, workspace_id=caller.workspace_id)
        page = list_events(session, job_id, kind=kind, after=after, limit=limit)
    return output(
        request, {"events": [event_reply(one, language_of(request)) for one in page.items], **_cursor(page)}
    )


@router.get("/metrics", summary="The curves of a job")
def metrics(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    names: Annotated[
        str | None, Query(max_length=4096, description="names, separated by commas; all where absent")
    ] = None,
    naming: Annotated[
        Literal["strop", "ark"], Query(description="ark: by Ark's names, those that Ark has")
    ] = "strop",
) -> Response:
    wanted = [name for name in names.split(",") if name] if names else None
    with services.database.read() as session:
        get_job(session, job_id, workspace_id=caller.workspace_id)
        if naming == "ark":
            known = by_ark_name(metric_names(session, job_id))
            ours = {name: known[name] for name in wanted or known if name in known}
            found = step_metrics(session, job_id, list(ours.values()))
            curves = {name: found[own] for name, own in ours.items()}
        else:
            curves = step_metrics(session, job_id, wanted)
    shown = {
        name: [{"step": step, "value": value} for step, value in points] for name, points in curves.items()
    }
    return output(request, {"metrics": shown})


@router.get("/trajectories", summary="Rollouts of a job, without their turns")
def trajectories(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    step: Step = None,
    split: Word = None,
    sample_id: Word = None,
    status: TaskStatus | None = None,
    min_reward: float | None = None,
    max_reward: float | None = None,
    after: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Response:
    with services.database.read() as session:
        get_job(session, job_id, workspace_id=caller.workspace_id)
        page = list_trajectories(
            session,
            job_id,
            step=step,
            split=split,
            sample_id=sample_id,
            status=status,
            min_reward=min_reward,
            max_reward=max_reward,
            after=after,
            limit=limit,
        )
    return output(request, {"trajectories": [trajectory_values(one) for one in page.items], **_cursor(page)})


@router.get("/trajectories/{rollout_id:path}", summary="One rollout with its turns")
def trajectory(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    rollout_id: str,
    step: Step = None,
) -> Response:
    with services.database.read() as session:
        get_job(session, job_id, workspace_id=caller.workspace_id)
        found = get_trajectory(session, job_id, rollout_id, step=step)
    return output(request, trajectory_values(found))


@router.get("/checkpoints", summary="Checkpoints of a job, in order of steps")
def checkpoints(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    with services.database.read() as session:
        job = get_job(session, job_id, workspace_id=caller.workspace_id)
        found = list_checkpoints(session, job_id)
    best = best_checkpoint(job, found)
    name = job.config.get("tuned_model_name") or job_id
    shown = [checkpoint_reply(one, name, best=one is best) for one in found]
    return output(request, {"checkpoints": shown, "total": len(shown)})


@router.get(
    "/stream",
    summary="Status, events and metrics as they come (server-sent events)",
    response_class=StreamingResponse,
    responses=EVENTS,
)
async def stream(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    progress: Annotated[bool, Query(description="also checkpoints, and how far each phase is")] = False,
) -> Response:
    await services.streams.look(jobs.get, services, caller, job_id)
    sent = _Sent(language_of(request), with_progress=progress)
    return EventStream(_follow(services, job_id, request, sent), services.streams, caller.workspace_id)


@dataclass(slots=True)
class _Sent:
    """What a stream has sent already, and in which language."""

    language: str
    status: JobStatus | None = None
    cursor: str | None = None
    steps: dict[int, int] = field(default_factory=dict[int, int])
    number: int = 0
    with_progress: bool = False
    progress: Progress | None = None
    checkpoints: set[tuple[int, bool]] = field(default_factory=set[tuple[int, bool]])


async def _follow(services: Services, job_id: str, request: Request, sent: _Sent) -> AsyncGenerator[str]:
    silent_since = time.monotonic()
    while True:
        frames, ended = await services.streams.look(_news, services.database, job_id, sent)
        for frame in frames:
            yield frame
            silent_since = time.monotonic()
        if ended:
            return
        if time.monotonic() - silent_since > _KEEP_ALIVE_S:
            yield ":\n\n"
            silent_since = time.monotonic()
        await asyncio.sleep(_POLL_S)
        if await request.is_disconnected():
            return


def _news(database: Database, job_id: str, sent: _Sent) -> tuple[list[str], bool]:
    """What came since the last look, and whether nothing more can come."""
    with database.read() as session:
        job = get_job(session, job_id)
        page = list_events(session, job_id, after=sent.cursor)
        curves = step_metrics(session, job_id, since_step=max(sent.steps, default=0))
        submission = submissions_of(session, [job_id]).get(job_id)
        progress = find_progress(session, job_id) if sent.with_progress else None
        saved = list_checkpoints(session, job_id, with_removed=True) if sent.with_progress else []
    last = [event for event in page.items if event.kind in _LAST_EVENTS]
    first = [event for event in page.items if event.kind not in _LAST_EVENTS]
    news: list[dict[str, Any]] = [{"type": "event", **event_reply(event, sent.language)} for event in first]
    sent.cursor = page.next
    steps: dict[int, dict[str, float]] = {}
    for name, points in curves.items():
        for step, value in points:
            steps.setdefault(step, {})[name] = value
    for step, values in sorted(steps.items()):
        if len(values) > sent.steps.get(step, 0):
            sent.steps[step] = len(values)
            news.append({"type": "metrics", "step": step, "metrics": values})
    for one in saved:
        if (one.step, one.published) not in sent.checkpoints:
            sent.checkpoints.add((one.step, one.published))
            news.append({"type": "checkpoint", **saved_reply(one)})
    news += [{"type": "event", **event_reply(event, sent.language)} for event in last]
    if progress is not None and progress != sent.progress and not job.status.final:
        sent.progress = progress
        news.append({"type": "progress", **progress.model_dump(exclude={"job_id"})})
    if job.status is not sent.status:
        sent.status = job.status
        news.append({"type": "status", **job_reply(JobRecord(job=job, submission=submission), sent.language)})
    return [_frame(one, sent) for one in news], job.status.final and not page.more


def _frame(value: dict[str, Any], sent: _Sent) -> str:
    """No space after the colons: clients of 1.x keep it."""
    sent.number += 1
    data = json.dumps(without_nulls(value), ensure_ascii=True)
    return f"id:{sent.number}\nevent:result\n:HTTP_STATUS/200\ndata:{data}\n\n"


def _cursor(page: Page[Any]) -> dict[str, Any]:
    return {"next": page.next, "more": page.more}
