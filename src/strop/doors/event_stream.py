"""Frames -> server-sent events that count as one of their workspace's streams while they are sent."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from strop.service.streams import Streams


class EventStream(StreamingResponse):
    """Refused with 429 where the workspace has as many streams open as it may."""

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncIterator[str | bytes], streams: Streams, workspace_id: str) -> None:
        super().__init__(frames, headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._streams = streams
        self._workspace_id = workspace_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.one_more(self._workspace_id):
            await super().__call__(scope, receive, send)
