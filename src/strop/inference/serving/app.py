"""HTTP -> served calls: `POST /v1/chat/completions`, `GET /v1/models`, `/healthz`, `/metrics`.

`strop serve` runs it; the server's proxy is one of its clients. A replica of a base that is shared also takes
`POST /v1/load_lora_adapter` and `/v1/unload_lora_adapter`, under the names that vLLM gave them.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from strop.inference.chat.endpoint import read_body
from strop.inference.chat.errors import RequestRefused
from strop.inference.chat.request import parse_request
from strop.inference.chat.stream import answer, answered_or_refused, bearer, refuse_in_openai_form
from strop.inference.serving.calls import ServedCall
from strop.inference.serving.metrics import CONTENT_TYPE, Outcome
from strop.inference.serving.models import ServedModel, ServedModels
from strop.locales import msg
from strop.schema.deployment import PROMPT_TOKENS, TELL_USAGE


class Loaded(BaseModel):
    """A model to add: its name, and the folder it was published in."""

    model_config = ConfigDict(extra="forbid")

    lora_name: str
    lora_path: str


class Unloaded(BaseModel):
    model_config = ConfigDict(extra="forbid")

    lora_name: str


def create_app(models: ServedModels, *, api_key: str | None) -> FastAPI:
    """The routes of a process's models. With an `api_key` every call needs it; health and metrics do not."""
    metrics_of_all = models.base.metrics
    app = FastAPI(title="Strop model", docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        async def chat() -> Response:
            _authorise(request, api_key)
            return await _chat(models, request)

        def count(refusal: RequestRefused) -> None:
            if refusal.http_status < 500 and refusal.http_status != 429:  # the call has counted that one
                metrics_of_all.count(Outcome.REFUSED)

        return await answered_or_refused(chat(), count)

    @app.get("/v1/models")
    async def list_models(request: Request) -> Response:
        _authorise(request, api_key)
        return JSONResponse({"object": "list", "data": [_described(one) for one in models.all()]})

    @app.get("/v1/models/{name:path}")
    async def one_model(request: Request, name: str) -> Response:
        _authorise(request, api_key)
        return JSONResponse(_described(models.find(name)))

    @app.get("/healthz")
    async def healthz() -> Response:
        failure = models.base.failure()
        if failure is not None or models.base.stopping:
            why = "stopping" if failure is None else f"the engine has stopped: {failure}"
            return JSONResponse({"status": "unhealthy", "reason": why}, status_code=503)
        return JSONResponse({"status": "healthy", "model": models.base.name})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(metrics_of_all.text(), headers={"content-type": CONTENT_TYPE})

    if models.changeable:

        @app.post("/v1/load_lora_adapter")
        async def load(request: Request, asked: Loaded) -> Response:
            _authorise(request, api_key)
            await models.load(asked.lora_name, Path(asked.lora_path))
            return JSONResponse({"status": "success", "model": asked.lora_name})

        @app.post("/v1/unload_lora_adapter")
        async def unload(request: Request, asked: Unloaded) -> Response:
            _authorise(request, api_key)
            models.unload(asked.lora_name)
            return JSONResponse({"status": "success", "model": asked.lora_name})

    refuse_in_openai_form(app)
    return app


def _authorise(request: Request, api_key: str | None) -> None:
    if api_key is None:
        return
    given = bearer(request)
    if given is None or not secrets.compare_digest(given.encode(), api_key.encode()):
        raise RequestRefused(msg("Incorrect API key provided"), status=401, code="invalid_api_key")


async def _chat(models: ServedModels, request: Request) -> Response:
    chat = parse_request(await read_body(request))
    call = ServedCall(models.find(chat.model), chat)
    headers = {PROMPT_TOKENS: str(call.num_prompt_tokens)}
    return await answer(call, request, headers=headers, tells_usage=TELL_USAGE in request.headers)


def _described(model: ServedModel) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "strop",
        "max_model_len": model.max_length,
    }
