"""A job's Logs tab: the newest lines by component, level and word, the last error on top, a live tail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from strop.console.access import COOKIE
from strop.console.job_frame import job_here, job_page
from strop.console.pages import LARGEST
from strop.console.requests import CallerHere, EventStream, ServicesHere
from strop.service.services import Services
from strop.store.database import Database
from strop.store.jobs import get_job
from strop.store.keys import caller_in_session
from strop.store.logs import (
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
_MAX_DIGITS = 18
"""Of a line's number: the database holds no larger one."""

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
    before: Annotated[int | None, Query(ge=0, le=LARGEST)] = None,
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
    after: Annotated[int, Query(ge=0, le=LARGEST)] = 0,
    component: Component = "",
    level: Level = "",
    q: Word = "",
) -> Response:
    """Lines as they are printed (server-sent events), until the job or the session has ended, or the page
    is left."""

    def check() -> None:
        with services.database.read() as session:
            get_job(session, job_id, workspace_id=caller.workspace_id)

    await services.streams.look(check)
    last = request.headers.get("last-event-id", "")
    known = last.isascii() and last.isdigit() and len(last) <= _MAX_DIGITS
    begin = int(last) if known else after
    told = _follow(request, services, job_id, lines_wanted(component, level, q), begin)
    return EventStream(told, services.streams, caller.workspace_id)


def lines_wanted(component: str, level: str, word: str) -> WantedLines:
    """A level means itself and what is worse."""
    levels = LEVELS[: LEVELS.index(level) + 1] if level else LEVELS
    return WantedLines(component=component or None, levels=levels, word=word.strip())


async def _follow(
    request: Request, services: Services, job_id: str, wanted: WantedLines, after: int
) -> AsyncGenerator[bytes]:
    token = request.cookies.get(COOKIE, "")
    silent_s = 0.0
    while True:
        news = await services.streams.look(_news, services.database, token, job_id, wanted, after)
        if news is None:
            return
        lines, after, ended = news
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


def _news(
    database: Database, token: str, job_id: str, wanted: WantedLines, after: int
) -> tuple[list[Line], int, bool] | None:
    """Lines that came, the newest key looked at, whether the job has ended; None once the session has."""
    with database.read() as session:
        if caller_in_session(session, token) is None:
            return None
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
