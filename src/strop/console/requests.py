"""A request of a page -> the services it works with, who has signed in, and a stream of events back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from strop.schema.access import Caller
from strop.service.services import Services
from strop.service.streams import Streams


def services_of(request: Request) -> Services:
    return request.app.state.services


def caller_of_session(request: Request) -> Caller:
    """Who has signed in; `access.signed_in` found out before any page is made."""
    return request.scope["state"]["caller"]


ServicesHere = Annotated[Services, Depends(services_of)]
CallerHere = Annotated[Caller, Depends(caller_of_session)]


class EventStream(StreamingResponse):
    """Server-sent events that count as one of their workspace's streams while they are sent."""

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncIterator[bytes], streams: Streams, workspace_id: str) -> None:
        super().__init__(frames, headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._streams = streams
        self._workspace_id = workspace_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.one_more(self._workspace_id):
            await super().__call__(scope, receive, send)


def wrong_fields(error: RequestValidationError) -> str:
    """Every wrong field of an address or a form, without repeating what was sent."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc'][1:]))}: {str(one['msg']).removeprefix('Value error, ')}"
        for one in error.errors()
    )
