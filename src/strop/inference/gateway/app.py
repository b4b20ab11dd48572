"""HTTP -> calls: the OpenAI-compatible address of every attempt, `/rollouts/{rollout}/{attempt}/v1/...`."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from strop.inference.gateway.attempts import Attempt, Attempts
from strop.inference.gateway.body import read_body
from strop.inference.gateway.calls import Calls
from strop.inference.gateway.errors import ClientGone, RequestRefused, refusal_of, unknown_url, wrong_key
from strop.inference.gateway.idempotency import Identity
from strop.inference.gateway.openai_types import ChatRequest, parse_request
from strop.inference.gateway.stream import EventStream, refused, replayed, watched


def create_app(attempts: Attempts, calls: Calls) -> FastAPI:
    """The routes over one table of attempts. Without docs pages: only agents come here."""
    app = FastAPI(title="Strop gateway", docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/rollouts/{rollout_id:path}/{attempt_id}/v1/chat/completions")
    async def chat_completions(request: Request, rollout_id: str, attempt_id: str) -> Response:
        try:
            attempt = _authorised(attempts, request, rollout_id, attempt_id)
            return await _chat(attempt, calls, request)
        except (ClientGone, ClientDisconnect):
            return Response(status_code=499)
        except Exception as error:  # noqa: BLE001 - HTTP edge: every failure of a call is answered in OpenAI's form
            refusal = refusal_of(error)
            calls.stats.refused_calls += refusal.http_status < 500
            return refused(refusal)

    @app.get("/rollouts/{rollout_id:path}/{attempt_id}/v1/models")
    async def models(request: Request, rollout_id: str, attempt_id: str) -> Response:
        _authorised(attempts, request, rollout_id, attempt_id)
        model = {"id": calls.model_name, "object": "model", "created": 0, "owned_by": "strop"}
        return JSONResponse({"object": "list", "data": [model]})

    @app.exception_handler(RequestRefused)
    async def refuse(request: Request, error: RequestRefused) -> Response:
        return refused(error)

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        served = "POST /chat/completions and GET /models"
        return refused(unknown_url(request, served, status=error.status_code))

    return app


def _authorised(attempts: Attempts, request: Request, rollout_id: str, attempt_id: str) -> Attempt:
    """The attempt that the address names, if it is open and the key is its own."""
    attempt = attempts.find(rollout_id, attempt_id)
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise wrong_key()
    attempt.check_key(key.strip())
    attempt.check_open()
    return attempt


async def _chat(attempt: Attempt, calls: Calls, request: Request) -> Response:
    body = await read_body(request)
    chat = parse_request(body)
    identity = Identity.of(request.headers, body)
    reply = await _earlier_reply(attempt, identity)
    if reply is not None:
        calls.stats.replayed_calls += 1
        return _replay(reply, chat)
    call = calls.begin(attempt, chat, identity)
    if chat.stream:
        return EventStream(call)
    with call, watched(request.receive, call):
        await call.finish()
        return JSONResponse(call.reply())


async def _earlier_reply(attempt: Attempt, identity: Identity) -> dict[str, Any] | None:
    """The answer this call already got, once a call with the same Idempotency-Key has ended."""
    while identity.key is not None:
        twin = next(
            (one for one in attempt.calls if one.identity and one.identity.call == identity.call), None
        )
        if twin is None:
            break
        await twin.ended.wait()
        await asyncio.sleep(0)
    attempt.check_open()
    return attempt.replays.reply_to(identity)


def _replay(reply: dict[str, Any], chat: ChatRequest) -> Response:
    return replayed(reply, wants_usage=chat.wants_usage) if chat.stream else JSONResponse(reply)
