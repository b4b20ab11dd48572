"""`/fine-tunes/{job}/...`: what a job said and made, from its logs to its checkpoints, and a live stream."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
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
from strop.schema.job import Checkpoint, Event, Progress
from strop.schema.responses import without_nulls
from strop.service import job_history, jobs
from strop.service.job_history import reading, trajectory_values
from strop.service.job_news import JobNews, News, StepValues
from strop.service.job_record import JobRecord
from strop.service.services import Services
from strop.store.events import list_events
from strop.store.logs import numbered_lines
from strop.store.tables import Page
from strop.store.trajectories import get_trajectory, list_trajectories

router = APIRouter(route_class=JsonRoute, prefix="/fine-tunes/{job_id}", tags=["fine-tunes"])

_POLL_S = 0.5
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
    with reading(services, caller, job_id) as session:
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
    with reading(services, caller, job_id) as session:
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
    curves = job_history.curves(services, caller, job_id, wanted, ark=naming == "ark")
    points = {
        name: [{"step": step, "value": value} for step, value in curve] for name, curve in curves.items()
    }
    return output(request, {"metrics": points})


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
    with reading(services, caller, job_id) as session:
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
    with reading(services, caller, job_id) as session:
        found = get_trajectory(session, job_id, rollout_id, step=step)
    return output(request, trajectory_values(found))


@router.get("/checkpoints", summary="Checkpoints of a job, in order of steps")
def checkpoints(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    found = job_history.checkpoints(services, caller, job_id)
    replies = [checkpoint_reply(one, found.model_name, best=one is found.best) for one in found.all]
    return output(request, {"checkpoints": replies, "total": len(replies)})


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
    news = JobNews(services.database, job_id, progress=progress)
    return EventStream(_follow(services, request, news), services.streams, caller.workspace_id)


async def _follow(services: Services, request: Request, news: JobNews) -> AsyncGenerator[str]:
    language = language_of(request)
    silent_since, number = time.monotonic(), 0
    while True:
        for one in await services.streams.look(news.look):
            number += 1
            yield _frame(_item(one, language), number)
            silent_since = time.monotonic()
        if news.ended:
            return
        if time.monotonic() - silent_since > _KEEP_ALIVE_S:
            yield ":\n\n"
            silent_since = time.monotonic()
        await asyncio.sleep(_POLL_S)
        if await request.is_disconnected():
            return


def _item(one: News, language: str) -> dict[str, Any]:
    match one:
        case Event():
            return {"type": "event", **event_reply(one, language)}
        case StepValues():
            return {"type": "metrics", "step": one.step, "metrics": one.values}
        case Checkpoint():
            return {"type": "checkpoint", **saved_reply(one)}
        case Progress():
            return {"type": "progress", **one.model_dump(exclude={"job_id"})}
        case JobRecord():
            return {"type": "status", **job_reply(one, language)}


def _frame(value: dict[str, Any], number: int) -> str:
    """No space after the colons: clients of 1.x keep it."""
    data = json.dumps(without_nulls(value), ensure_ascii=True)
    return f"id:{number}\nevent:result\n:HTTP_STATUS/200\ndata:{data}\n\n"


def _cursor(page: Page[Any]) -> dict[str, Any]:
    return {"next": page.next, "more": page.more}
