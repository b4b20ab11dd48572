"""HTTP -> served calls: `POST /v1/chat/completions`, `GET /v1/models`, `/healthz`, `/metrics`.

`strop serve` runs it; the server's proxy is one of its clients.
"""

from __future__ import annotations

import secrets
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from strop.gateway.body import read_body
from strop.gateway.openai_types import parse_request
from strop.gateway.refusals import ClientGone, RequestRefused, refusal_of, unknown_url
from strop.gateway.stream import EventStream, refused, watched
from strop.schema.deployment import PROMPT_TOKENS, TELL_USAGE
from strop.serving.calls import ServedCall
from strop.serving.metrics import CONTENT_TYPE, Outcome
from strop.serving.model import ServedModel, unknown_model


def create_app(model: ServedModel, *, api_key: str | None) -> FastAPI:
    """The routes of one model. With an `api_key` every call needs it; health and metrics do not."""
    app = FastAPI(title="Strop model", docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        try:
            _authorise(request, api_key)
            return await _chat(model, request)
        except (ClientGone, ClientDisconnect):
            return Response(status_code=499)
        except Exception as error:  # noqa: BLE001 - HTTP edge: every failure of a call is answered in OpenAI's form
            refusal = refusal_of(error)
            if refusal.http_status < 500 and refusal.http_status != 429:  # the call has counted that one
                model.metrics.count(Outcome.REFUSED)
            return refused(refusal)

    @app.get("/v1/models")
    async def models(request: Request) -> Response:
        _authorise(request, api_key)
        return JSONResponse({"object": "list", "data": [_described(model)]})

    @app.get("/v1/models/{name:path}")
    async def one_model(request: Request, name: str) -> Response:
        _authorise(request, api_key)
        if name != model.name:
            raise unknown_model(name, [model.name])
        return JSONResponse(_described(model))

    @app.get("/healthz")
    async def healthz() -> Response:
        failure = model.failure()
        if failure is not None or model.stopping:
            why = "stopping" if failure is None else f"the engine has stopped: {failure}"
            return JSONResponse({"status": "unhealthy", "reason": why}, status_code=503)
        return JSONResponse({"status": "healthy", "model": model.name})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(model.metrics.text(), headers={"content-type": CONTENT_TYPE})

    @app.exception_handler(RequestRefused)
    async def refuse(request: Request, error: RequestRefused) -> Response:
        return refused(error)

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        served = "POST /chat/completions and GET /models"
        return refused(unknown_url(request, served, status=error.status_code))

    return app


def _authorise(request: Request, api_key: str | None) -> None:
    if api_key is None:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secrets.compare_digest(given.strip().encode(), api_key.encode()):
        raise RequestRefused("Incorrect API key provided", status=401, code="invalid_api_key")


async def _chat(model: ServedModel, request: Request) -> Response:
    call = ServedCall(model, parse_request(await read_body(request)))
    headers = {PROMPT_TOKENS: str(call.num_prompt_tokens)}
    if call.request.stream:
        return EventStream(call, headers=headers, tells_usage=TELL_USAGE in request.headers)
    with call, watched(request.receive, call):
        await call.finish()
        return JSONResponse(call.reply(), headers=headers)


def _described(model: ServedModel) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "strop",
        "max_model_len": model.max_length,
    }
