"""OpenAI calls to deployed models -> the least busy replica: `/v1/...` and `/compatible-mode/v1/...`.

The body goes through as it is, a stream byte by byte as it comes. A replica that dies before its answer has
begun is replaced by another; one that dies in a stream ends it with an error event. A client that leaves is
passed on: the connection to the replica closes, and the engine's place is free.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import aiohttp
import orjson
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from strop.doors.documented import ANSWER, OPENAI_FAILURES
from strop.doors.requests import CallerHere, ServicesHere
from strop.schema.deployment import PROMPT_TOKENS, TELL_USAGE, USAGE_COMMENT
from strop.service.fleet import Runs
from strop.service.fleets import Deployed

router = APIRouter(tags=["openai"], responses=OPENAI_FAILURES)

NOT_READY_S = 5.0
"""Seconds after which to ask a model again that is being deployed."""

STOPPING = "the server is stopping; call again"

_PASSED_ON = ("content-type", "cache-control", "retry-after", "x-should-retry", PROMPT_TOKENS)
_TAIL_BYTES = 1024
_USAGE = re.compile(re.escape(USAGE_COMMENT) + rb"(\{[^\n]*\})\n\n")


@router.post("/v1/chat/completions", summary="Ask a deployed model", responses=ANSWER)
@router.post("/compatible-mode/v1/chat/completions", summary="Ask a deployed model", responses=ANSWER)
async def chat_completions(request: Request, services: ServicesHere, caller: CallerHere) -> Response:
    body = await request.body()
    name = _model_asked(body)
    if isinstance(name, Response):
        return name
    deployed = services.fleets.find(name, caller.workspace_id)
    if deployed is None:
        there = ", ".join(services.fleets.names(caller.workspace_id)) or "none"
        message = f"The model {name!r} does not exist here; deployed: {there}"
        return openai_error(404, message, code="model_not_found", param="model")
    reached = deployed.limits.refusal()
    if reached is not None:
        message = f"Rate limit reached for {name}: {reached[0]}; try again in {reached[1]:.0f} s"
        return openai_error(429, message, code="rate_limit_exceeded", retry_after_s=reached[1])
    return Forwarded(deployed, services.fleets.client, body)


@router.get("/v1/models", summary="The deployed models")
@router.get("/compatible-mode/v1/models", summary="The deployed models")
async def models(services: ServicesHere, caller: CallerHere) -> Response:
    names = services.fleets.names(caller.workspace_id)
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "strop"} for name in names]
    return JSONResponse({"object": "list", "data": data})


def openai_error(
    status: int,
    message: str,
    *,
    code: str,
    param: str | None = None,
    retry_after_s: float | None = None,
) -> Response:
    """An error as OpenAI's clients read it."""
    headers = {} if retry_after_s is None else {"retry-after": str(max(1, math.ceil(retry_after_s)))}
    return JSONResponse(_error_body(status, message, code, param), status_code=status, headers=headers)


def _error_body(status: int, message: str, code: str, param: str | None = None) -> dict[str, Any]:
    kind = (
        "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    )
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _model_asked(body: bytes) -> str | Response:
    try:
        data: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return openai_error(400, f"the body is not JSON: {error}", code="invalid_json")
    name = cast("Mapping[str, object]", data).get("model") if isinstance(data, dict) else None
    if not isinstance(name, str):
        return openai_error(
            400, "model: expected the name of a deployment", code="invalid_model", param="model"
        )
    return name


class Forwarded(Response):
    """Sends the call on and its answer back."""

    def __init__(self, deployed: Deployed, client: aiohttp.ClientSession, body: bytes) -> None:
        super().__init__()
        self._deployed = deployed
        self._client = client
        self._call_body = body
        self._started = False
        self._last: bytes | None = None
        """What ends a reply that has begun; None once that was sent."""
        self._usage = _Usage()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        traffic = self._deployed.traffic
        traffic.begin()
        answering = asyncio.create_task(self._answer(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the server stops, and its grace is over
            answering.cancel()
            await asyncio.wait({answering})
            await self._break_off(scope, receive, send)
            raise
        finally:
            traffic.end()
            leaving.cancel()
            answering.cancel()
            await asyncio.wait({answering})
            self._count()
        if answering.cancelled():
            traffic.calls[499] += 1
        else:
            traffic.calls[answering.result()] += 1

    async def _answer(self, send: Send) -> int:
        """Returns the status the client got."""
        tried: Runs | None = None
        fleet = self._deployed.fleet
        for _ in range(2):
            replica = fleet.least_busy(other_than=tried)
            if replica is None:
                break
            replica.num_in_flight += 1
            try:
                return await self._through(replica, send)
            except aiohttp.ClientError as error:
                if self._started:
                    await self._end(send, _lost_event(error))
                    return 502
                tried = replica
            finally:
                replica.num_in_flight -= 1
        refusal = _lost() if tried is not None else _not_ready(self._deployed.name, fleet.error)
        body = bytes(refusal.body)
        await self._begin(send, refusal.status_code, refusal.raw_headers, last=body)
        await self._end(send, body)
        return refusal.status_code

    async def _through(self, replica: Runs, send: Send) -> int:
        headers = {
            "authorization": f"Bearer {replica.key}",
            "content-type": "application/json",
            TELL_USAGE: "1",
        }
        url = f"{replica.url}/v1/chat/completions"
        async with self._client.post(url, data=self._call_body, headers=headers) as answer:
            self._usage.prompt_tokens = int(answer.headers.get(PROMPT_TOKENS, "0"))
            streams = answer.headers.get("content-type", "").startswith("text/event-stream")
            whole = None if streams else await answer.read()
            passed = [
                (name.encode(), answer.headers[name].encode())
                for name in _PASSED_ON
                if name in answer.headers
            ]
            if whole is not None:
                passed.append((b"content-length", str(len(whole)).encode()))
                self._usage.whole(whole)
            last = whole if whole is not None else _event(503, STOPPING, "server_stopping")
            await self._begin(send, answer.status, passed, last=last)
            if whole is None:
                async for part in answer.content.iter_any():
                    self._usage.part(part)
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await self._end(send, whole or b"")
            return answer.status

    async def _begin(
        self, send: Send, status: int, headers: Sequence[tuple[bytes, bytes]], *, last: bytes
    ) -> None:
        """Send the head; `last` ends the reply should nothing else do so."""
        self._started, self._last = True, last
        await send({"type": "http.response.start", "status": status, "headers": headers})

    async def _end(self, send: Send, body: bytes) -> None:
        self._last = None
        await send({"type": "http.response.body", "body": body})

    async def _break_off(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The client's last word from a server that stops: a refusal, or the end of a reply that lacks one.

        A whole answer keeps the length that its head promised.
        """
        if self._last is not None:
            await send({"type": "http.response.body", "body": self._last, "more_body": False})
        elif not self._started:
            await openai_error(503, STOPPING, code="server_stopping", retry_after_s=1)(scope, receive, send)

    def _count(self) -> None:
        prompt, completion = self._usage.tokens()
        self._deployed.limits.used(prompt + completion)
        self._deployed.traffic.prompt_tokens += prompt
        self._deployed.traffic.completion_tokens += completion


class _Usage:
    """Tokens of an answer: as the replica says, or counted by events where it was cut off."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self._num_events = 0
        self._tail = b""
        self._said: tuple[int, int] | None = None

    def whole(self, body: bytes) -> None:
        try:
            usage = orjson.loads(body).get("usage", {})
            self._said = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
        except (orjson.JSONDecodeError, KeyError, AttributeError):
            self._said = 0, 0  # an error, which costs nothing

    def part(self, part: bytes) -> None:
        self._num_events += part.count(b"\n\n")
        self._tail = (self._tail + part)[-_TAIL_BYTES:]

    def tokens(self) -> tuple[int, int]:
        if self._said is not None:
            return self._said
        found = _USAGE.search(self._tail)
        if found is not None:
            usage = orjson.loads(found[1])
            return int(usage["prompt_tokens"]), int(usage["completion_tokens"])
        return self.prompt_tokens, self._num_events


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def _not_ready(name: str, why: str | None) -> Response:
    message = f"{name} has no replica that answers" + (f": {why}" if why else "; it is being deployed")
    return openai_error(503, message, code="model_not_ready", retry_after_s=NOT_READY_S)


def _lost() -> Response:
    message = "the replica that took this call was lost before it answered; call again"
    return openai_error(503, message, code="replica_lost", retry_after_s=1)


def _lost_event(error: Exception) -> bytes:
    message = f"the replica that was answering was lost ({type(error).__name__}); call again"
    return _event(502, message, "replica_lost")


def _event(status: int, message: str, code: str) -> bytes:
    return b"data: " + orjson.dumps(_error_body(status, message, code)) + b"\n\n"
