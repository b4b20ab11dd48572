"""HTTP -> calls: the OpenAI-compatible address of every attempt, `/rollouts/{rollout}/{attempt}/v1/...`."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from strop.inference.chat.endpoint import read_body
from strop.inference.chat.errors import RequestRefused, wrong_key
from strop.inference.chat.request import ChatRequest, parse_request
from strop.inference.chat.stream import answer, answered_or_refused, bearer, refuse_in_openai_form, replayed
from strop.inference.gateway.attempts import Attempt, Attempts
from strop.inference.gateway.calls import Calls
from strop.inference.gateway.idempotency import Identity


def create_app(attempts: Attempts, calls: Calls) -> FastAPI:
    """The routes over one table of attempts. Without docs pages: only agents come here."""
    app = FastAPI(title="Strop gateway", docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/rollouts/{rollout_id:path}/{attempt_id}/v1/chat/completions")
    async def chat_completions(request: Request, rollout_id: str, attempt_id: str) -> Response:
        async def chat() -> Response:
            return await _chat(_authorised(attempts, request, rollout_id, attempt_id), calls, request)

        def count(refusal: RequestRefused) -> None:
            calls.stats.refused_calls += refusal.http_status < 500

        return await answered_or_refused(chat(), count)

    @app.get("/rollouts/{rollout_id:path}/{attempt_id}/v1/models")
    async def models(request: Request, rollout_id: str, attempt_id: str) -> Response:
        _authorised(attempts, request, rollout_id, attempt_id)
        model = {"id": calls.model_name, "object": "model", "created": 0, "owned_by": "strop"}
        return JSONResponse({"object": "list", "data": [model]})

    refuse_in_openai_form(app)
    return app


def _authorised(attempts: Attempts, request: Request, rollout_id: str, attempt_id: str) -> Attempt:
    """The attempt that the address names, if it is open and the key is its own."""
    attempt = attempts.find(rollout_id, attempt_id)
    key = bearer(request)
    if key is None:
        raise wrong_key()
    attempt.check_key(key)
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
    return await answer(calls.begin(attempt, chat, identity), request)


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
