"""A call under way -> server-sent events, one as soon as each piece of text is certain.

The status line waits for the first piece: what fails before it gets a proper HTTP status. What fails later
is sent as an error event, which OpenAI's clients raise. The turns are captured before the closing events go
out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from strop.inference.chat.call import ChatCall
from strop.inference.chat.errors import ClientGone, RequestRefused, refusal_of, unknown_url
from strop.inference.chat.replies import chunk, closing_chunks, whole_stream
from strop.inference.chat.tool_calls import ShownText
from strop.schema.deployment import USAGE_COMMENT

_MEDIA_TYPE = "text/event-stream; charset=utf-8"
_HEADERS = {"content-type": _MEDIA_TYPE, "cache-control": "no-cache"}
_DONE = b"data: [DONE]\n\n"


class EventStream(Response):
    """Runs the call while sending it; leaves nothing running when the client goes.

    With `tells_usage` a comment line `: usage {...}`, which clients skip, comes before the end: for a proxy
    that counts tokens.
    """

    def __init__(
        self, call: ChatCall, *, headers: Mapping[str, str] | None = None, tells_usage: bool = False
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

    async def _events(self, call: ChatCall) -> AsyncIterator[dict[str, Any]]:
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


async def answer(
    call: ChatCall, request: Request, *, headers: Mapping[str, str] | None = None, tells_usage: bool = False
) -> Response:
    """Run a call and answer it, as a stream or whole, as its request has it. The body must have been read.

    Raises:
        EngineError, RequestRefused, ClientGone: what ended a call that does not stream.
    """
    if call.request.stream:
        return EventStream(call, headers=headers, tells_usage=tells_usage)
    with call, watched(request.receive, call):
        await call.finish()
        return JSONResponse(call.reply(), headers=headers)


async def answered_or_refused(
    answering: Awaitable[Response], on_refusal: Callable[[RequestRefused], None]
) -> Response:
    """Every failure of a call in OpenAI's form; `on_refusal` hears of it first."""
    try:
        return await answering
    except (ClientGone, ClientDisconnect):
        return Response(status_code=499)
    except Exception as error:  # noqa: BLE001 - HTTP edge: every failure of a call is answered in OpenAI's form
        refusal = refusal_of(error)
        on_refusal(refusal)
        return refused(refusal)


def refuse_in_openai_form(app: FastAPI) -> None:
    """Answer what no route took, and what a route refused, as OpenAI's clients expect it."""

    @app.exception_handler(RequestRefused)
    async def refuse(request: Request, error: RequestRefused) -> Response:
        return refused(error)

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        served = "POST /chat/completions and GET /models"
        return refused(unknown_url(request, served, status=error.status_code))


def bearer(request: Request) -> str | None:
    """The key in the request's Authorization header; None where there is no bearer key."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def refused(refusal: RequestRefused) -> Response:
    return JSONResponse(refusal.body, status_code=refusal.http_status, headers=refusal.headers)


def replayed(reply: dict[str, Any], *, wants_usage: bool) -> Response:
    """A remembered reply as a stream."""
    events = b"".join(_encoded(event) for event in whole_stream(reply, wants_usage=wants_usage))
    return Response(events + _DONE, headers=_HEADERS)


@contextlib.contextmanager
def watched(receive: Receive, call: ChatCall) -> Iterator[None]:
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
