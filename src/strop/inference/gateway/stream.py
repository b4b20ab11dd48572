"""A call under way -> server-sent events, one as soon as each piece of text is certain.

The status line waits for the first piece: what fails before it gets a proper HTTP status. What fails later
is sent as an error event, which OpenAI's clients raise. The turns are captured before the closing events go
out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import orjson
from fastapi import Response
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from strop.inference.gateway.errors import ClientGone, RequestRefused, refusal_of
from strop.inference.gateway.openai_types import ChatRequest
from strop.inference.gateway.replies import chunk, closing_chunks, whole_stream
from strop.inference.gateway.tool_calls import ShownText
from strop.schema.deployment import USAGE_COMMENT
from strop.schema.sampling import Completion, CompletionChunk

_MEDIA_TYPE = "text/event-stream; charset=utf-8"
_HEADERS = {"content-type": _MEDIA_TYPE, "cache-control": "no-cache"}
_DONE = b"data: [DONE]\n\n"


class OpenCall(Protocol):
    """A chat call under way, as an answer is made of it; see `strop.inference.gateway.calls.Call`."""

    request: ChatRequest
    created: int

    @property
    def reply_id(self) -> str: ...

    @property
    def model_name(self) -> str: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def interrupt(self, reason: Exception) -> None: ...

    def chunks(self) -> AsyncIterator[tuple[int, CompletionChunk]]: ...

    def logprobs_of(self, piece: Completion | CompletionChunk) -> dict[str, Any] | None: ...

    def reply(self) -> dict[str, Any]: ...


class EventStream(Response):
    """Runs the call while sending it; leaves nothing running when the client goes.

    With `tells_usage` a comment line `: usage {...}`, which clients skip, comes before the end: for a proxy
    that counts tokens.
    """

    def __init__(
        self, call: OpenCall, *, headers: Mapping[str, str] | None = None, tells_usage: bool = False
    ) -> None:
        super().__init__(headers={**_HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._call = call
        self._tells_usage = tells_usage
        self._usage: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        try:
            with self._call as call, watched(receive, call):
                async for event in self._events(call):
                    if not started:
                        await send(
                            {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
                        )
                        started = True
                    await _send_part(send, _encoded(event))
            told = USAGE_COMMENT + orjson.dumps(self._usage) + b"\n\n" if self._tells_usage else b""
            await _send_part(send, told + _DONE, last=True)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - HTTP edge: every failure of a call is answered in OpenAI's form
            refusal = refusal_of(error)
            if started:
                await _send_part(send, _encoded(refusal.body), last=True)
            else:
                await refused(refusal)(scope, receive, send)

    async def _events(self, call: OpenCall) -> AsyncIterator[dict[str, Any]]:
        request = call.request
        choices = range(request.num_choices)
        shown = [ShownText(watches_for_tools=request.parses_tools) for _ in choices]
        head = {"id": call.reply_id, "created": call.created, "model": call.model_name}
        if request.wants_usage:
            head["usage"] = None
        begun = False
        async for index, piece in call.chunks():
            if not begun:
                begun = True
                for choice in choices:
                    yield chunk(head, choice, {"role": "assistant", "content": ""})
            text = shown[index].feed(piece.text)
            logprobs = call.logprobs_of(piece) if piece.token_ids else None
            if text or logprobs:
                yield chunk(head, index, {"content": text}, logprobs=logprobs)
        reply = call.reply()
        self._usage = reply["usage"]
        for event in closing_chunks(
            reply, [one.length for one in shown], logprobs_sent=True, wants_usage=request.wants_usage
        ):
            yield event


def refused(refusal: RequestRefused) -> Response:
    return JSONResponse(refusal.body, status_code=refusal.http_status, headers=refusal.headers)


def replayed(reply: dict[str, Any], *, wants_usage: bool) -> Response:
    """A remembered reply as a stream."""
    events = b"".join(_encoded(event) for event in whole_stream(reply, wants_usage=wants_usage))
    return Response(events + _DONE, headers=_HEADERS)


@contextlib.contextmanager
def watched(receive: Receive, call: OpenCall) -> Iterator[None]:
    """Interrupt the call when its client closes the connection. The request's body must have been read."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        call.interrupt(ClientGone())

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()


def _encoded(event: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(event) + b"\n\n"


async def _send_part(send: Send, part: bytes, *, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": part, "more_body": not last})
