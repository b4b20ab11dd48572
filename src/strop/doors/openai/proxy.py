"""OpenAI's calls to deployed models: `/v1/...` and `/compatible-mode/v1/...`, answered by `service.calls`.

A stream goes through byte by byte as it comes; one whose replica is lost ends with an error event. When a
client leaves, the connection to the replica closes, and its place in the engine is free.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from strop.doors.documented import ANSWER, OPENAI_FAILURES
from strop.doors.requests import CallerHere, ServicesHere
from strop.schema.deployment import PROMPT_TOKENS
from strop.service.calls import LEFT, Call, NoReplica, ReplicaLost

router = APIRouter(tags=["openai"], responses=OPENAI_FAILURES)

NOT_READY_S = 5.0
"""Seconds after which to ask a model again that is being deployed."""

STOPPING = "the server is stopping; call again"

_PASSED_ON = ("content-type", "cache-control", "retry-after", "x-should-retry", PROMPT_TOKENS)


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
    return Forwarded(Call(deployed, services.fleets.client, body))


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

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        self._started = False
        self._last: bytes | None = None
        """What ends a reply that has begun; None once that was sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._call.under_way():
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
                leaving.cancel()
                answering.cancel()
                await asyncio.wait({answering})
        self._call.ended(LEFT if answering.cancelled() else answering.result())

    async def _answer(self, send: Send) -> int:
        """Returns the status the client got."""
        try:
            async with self._call.answer() as answer:
                headers = [
                    (name.encode(), answer.headers[name].encode())
                    for name in _PASSED_ON
                    if name in answer.headers
                ]
                last = _event(503, STOPPING, "server_stopping")
                if answer.whole is not None:
                    last = answer.whole
                    headers.append((b"content-length", str(len(last)).encode()))
                await self._begin(send, answer.status, headers, last=last)
                async for part in answer.parts:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await self._end(send, answer.whole or b"")
                return answer.status
        except ReplicaLost as lost:
            if self._started:
                await self._end(send, _lost_event(lost))
                return 502
            refusal = _lost()
        except NoReplica as error:
            refusal = _not_ready(self._call.model, error.why)
        body = bytes(refusal.body)
        await self._begin(send, refusal.status_code, refusal.raw_headers, last=body)
        await self._end(send, body)
        return refusal.status_code

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


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def _not_ready(name: str, why: str | None) -> Response:
    message = f"{name} has no replica that answers" + (f": {why}" if why else "; it is being deployed")
    return openai_error(503, message, code="model_not_ready", retry_after_s=NOT_READY_S)


def _lost() -> Response:
    message = "the replica that took this call was lost before it answered; call again"
    return openai_error(503, message, code="replica_lost", retry_after_s=1)


def _lost_event(lost: ReplicaLost) -> bytes:
    message = f"the replica that was answering was lost ({lost}); call again"
    return _event(502, message, "replica_lost")


def _event(status: int, message: str, code: str) -> bytes:
    return b"data: " + orjson.dumps(_error_body(status, message, code)) + b"\n\n"
