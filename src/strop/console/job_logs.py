"""A job's Logs tab: the newest lines by component, level and word, the last error on top, a live tail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from strop.console.job_frame import job_here, job_page
from strop.server.services import CallerHere, Services, ServicesHere
from strop.store.jobs import get_job
from strop.store.log_search import (
    LEVELS,
    Line,
    WantedLines,
    find_lines,
    last_error,
    log_components,
    new_lines,
)

router = APIRouter()

LOOK_S = 0.5
KEEP_ALIVE_S = 15.0

Component = Annotated[str, Query(max_length=300)]
Level = Annotated[str, Query(pattern=r"^(|error|warning|info)$")]
Word = Annotated[str, Query(max_length=300)]


@router.get("/jobs/{job_id}/logs")
def logs_page(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    component: Component = "",
    level: Level = "",
    q: Word = "",
    before: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    wanted = lines_wanted(component, level, q)
    with services.database.read() as session:
        here = job_here(session, job_id, caller)
        found = find_lines(session, job_id, wanted, before=before)
        components = log_components(session, job_id)
        error = last_error(session, job_id) if before is None else ()
    return job_page(
        request,
        services,
        here,
        "logs",
        found=found,
        components=components,
        error=error,
        component=component,
        level=level,
        q=q,
        before=before,
    )


@router.get("/jobs/{job_id}/logs/stream")
async def stream(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    after: Annotated[int, Query(ge=0)] = 0,
    component: Component = "",
    level: Level = "",
    q: Word = "",
) -> Response:
    """Lines as they are printed (server-sent events), until the job has ended or the page is left."""

    def check() -> None:
        with services.database.read() as session:
            get_job(session, job_id, workspace_id=caller.workspace_id)

    await asyncio.to_thread(check)
    last = request.headers.get("last-event-id", "")
    begin = int(last) if last.isdigit() else after
    told = _follow(request, services, job_id, lines_wanted(component, level, q), begin)
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(told, media_type="text/event-stream", headers=headers)


def lines_wanted(component: str, level: str, word: str) -> WantedLines:
    """A level means itself and what is worse."""
    levels = LEVELS[: LEVELS.index(level) + 1] if level else LEVELS
    return WantedLines(component=component or None, levels=levels, word=word.strip())


async def _follow(
    request: Request, services: Services, job_id: str, wanted: WantedLines, after: int
) -> AsyncGenerator[bytes]:
    silent_s = 0.0
    while True:
        lines, after, ended = await asyncio.to_thread(_news, services, job_id, wanted, after)
        if lines:
            silent_s = 0.0
            data = orjson.dumps([_shown(line) for line in lines])
            yield b"id: %d\ndata: %b\n\n" % (after, data)
        if ended and not lines:
            yield b"event: end\ndata: {}\n\n"
            return
        if silent_s >= KEEP_ALIVE_S:
            silent_s = 0.0
            yield b":\n\n"
        await asyncio.sleep(LOOK_S)
        silent_s += LOOK_S
        if await request.is_disconnected():
            return


def _news(services: Services, job_id: str, wanted: WantedLines, after: int) -> tuple[list[Line], int, bool]:
    with services.database.read() as session:
        ended = get_job(session, job_id).status.final
        lines, after = new_lines(session, job_id, wanted, after=after)
    return lines, after, ended


def _shown(line: Line) -> dict[str, Any]:
    return {
        "time": line.created_at.isoformat(timespec="milliseconds"),
        "component": line.component,
        "level": line.level,
        "text": line.text,
    }
