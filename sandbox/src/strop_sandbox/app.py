"""HTTP -> the sandbox: SandboxFusion's paths, bodies and errors, so that its clients notice no difference.

A body that is no request: 422; one that cannot be meant: its status with {detail}; too much at once: 429 with
Retry-After; a failure of ours: 500 with {detail, traceback}. A program's end is always a 200.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strop_sandbox.datasets import Datasets
from strop_sandbox.errors import SandboxError, ThrottledError
from strop_sandbox.jupyter import run_jupyter
from strop_sandbox.metrics import CONTENT_TYPE
from strop_sandbox.sandbox import Sandbox
from strop_sandbox.submitting import Submissions
from strop_sandbox.test_files import TestFiles
from strop_sandbox.wire import (
    EvalResult,
    GetMetricsRequest,
    GetPromptByIdRequest,
    GetPromptsRequest,
    Prompt,
    RunCodeRequest,
    RunCodeResponse,
    RunJupyterRequest,
    RunJupyterResponse,
    SubmitRequest,
)

_log = logging.getLogger(__name__)
_BODY_BYTES = 256 * 2**20
_OURS = 500
_OPEN = ("/v1/ping", "/healthz", "/metrics")
_Answer = TypeVar("_Answer")


def create_app(
    sandbox: Sandbox,
    *,
    datasets: Datasets | None = None,
    test_files: TestFiles,
    api_key: str | None = None,
) -> FastAPI:
    """The routes of one sandbox, which opens and closes with the app."""
    datasets = datasets or Datasets()
    submissions = Submissions(sandbox, datasets, test_files)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        try:
            await sandbox.open()
            yield
        finally:
            await sandbox.close()
            test_files.close()

    app = FastAPI(title="Strop sandbox", lifespan=lifespan, redoc_url=None)
    app.add_middleware(AccessMiddleware, api_key=api_key)
    _install_failures(app, sandbox)

    async def admitted(client: Request, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_gone(client))
        try:
            async with sandbox.slots.admitted():
                await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not task.done():
                    raise ClientDisconnect
                return await task
        finally:
            gone.cancel()
            task.cancel()

    @app.get("/", response_class=PlainTextResponse)
    async def root() -> str:
        return "Strop sandbox; its API is described at /docs"

    @app.get("/v1/ping")
    async def ping() -> str:
        return "pong"

    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        facts = {fact.name: {"holds": fact.holds, "text": fact.text} for fact in sandbox.isolation.facts}
        return {"status": "healthy", "isolation": str(sandbox.isolation.kind), "facts": facts}

    @app.get("/languages")
    async def languages() -> dict[str, Any]:
        return {"runs": sorted(sandbox.toolchains.found), "missing": sandbox.toolchains.missing}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(sandbox.metrics.text(), headers={"content-type": CONTENT_TYPE})

    @app.post("/run_code")
    async def run_code(request: RunCodeRequest, client: Request) -> RunCodeResponse:
        return await admitted(client, sandbox.run_code(request))

    @app.post("/run_jupyter")
    async def jupyter(request: RunJupyterRequest, client: Request) -> RunJupyterResponse:
        return await admitted(client, run_jupyter(sandbox, request))

    @app.post("/submit")
    async def submit(request: SubmitRequest, client: Request) -> EvalResult:
        return await admitted(client, submissions.submit(request))

    @app.get("/list_datasets")
    async def list_datasets() -> list[str]:
        return datasets.names

    @app.post("/list_ids")
    async def list_ids(request: GetPromptsRequest) -> list[int | str]:
        return datasets.ids(request)

    @app.post("/get_prompts")
    async def get_prompts(request: GetPromptsRequest) -> list[Prompt]:
        return datasets.prompts(request)

    @app.post("/get_prompt_by_id")
    async def get_prompt_by_id(request: GetPromptByIdRequest) -> Prompt:
        return datasets.prompt(request)

    @app.post("/get_metrics")
    async def get_metrics(request: GetMetricsRequest) -> dict[str, Any]:
        return {}

    @app.post("/get_metrics_function")
    async def get_metrics_function(request: GetMetricsRequest) -> dict[str, Any]:
        return {"function": datasets.metrics_function(request)}

    return app


async def _gone(client: Request) -> None:
    """Returns when the client has left: nobody waits for the answer."""
    while (await client.receive())["type"] != "http.disconnect":
        pass


def _install_failures(app: FastAPI, sandbox: Sandbox) -> None:
    @app.exception_handler(SandboxError)
    async def refuse(request: Request, error: SandboxError) -> Response:
        headers: dict[str, str] = {}
        if isinstance(error, ThrottledError):
            sandbox.metrics.refused()
            headers["retry-after"] = str(_retry_after(sandbox))
        elif error.http_status >= 500:
            _log.error("%s failed: %s", request.url.path, error)
        told: dict[str, Any] = {"detail": str(error)}
        if error.http_status == _OURS:
            told["traceback"] = []
        return JSONResponse(told, status_code=error.http_status, headers=headers)

    @app.exception_handler(ExceptionGroup)
    async def ungroup(request: Request, group: ExceptionGroup[Exception]) -> Response:
        """Cases run side by side: what one of them met is what the request met."""
        error: Exception = group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        return await (refuse if isinstance(error, SandboxError) else fail)(request, error)  # pyright: ignore[reportArgumentType, reportUnknownArgumentType]

    @app.exception_handler(ClientDisconnect)
    async def left(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)

    @app.exception_handler(Exception)
    async def fail(request: Request, error: Exception) -> Response:
        identity = secrets.token_hex(8)
        _log.error("%s failed (%s)", request.url.path, identity, exc_info=error)
        text = f"the sandbox failed on this request; its log has the reason under {identity}"
        # The server drops the connection after it: a client that is told so asks its next on another one.
        told: dict[str, object] = {"detail": text, "traceback": []}
        return JSONResponse(told, status_code=_OURS, headers={"connection": "close"})


def _retry_after(sandbox: Sandbox) -> int:
    """Seconds until some of what waits has gone: a guess by what there is."""
    slots = sandbox.slots
    return max(1, min(30, math.ceil(slots.num_admitted / max(1, slots.num_slots) / 4)))


class AccessMiddleware:
    """Bounds bodies and asks for the key, if there is one: a bearer token, or `/key/KEY` before the path.

    The second is for clients that send no header, as all of this protocol do.
    """

    def __init__(self, app: ASGIApp, api_key: str | None) -> None:
        self._app, self._key = app, api_key.encode() if api_key is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = self._given(scope)
        too_long = _announced(scope) > _BODY_BYTES
        if (
            self._key is not None
            and scope["path"] not in _OPEN
            and not secrets.compare_digest(given, self._key)
        ):
            await JSONResponse(
                {"detail": "a key is needed: Authorization: Bearer KEY, or /key/KEY before the path"}, 401
            )(scope, receive, send)
        elif too_long:
            await _too_large()(scope, receive, send)
        else:
            bounded = _Bounded(scope, receive, send)
            await self._app(scope, bounded.receive, bounded.send)

    @staticmethod
    def _given(scope: Scope) -> bytes:
        parts = scope["path"].split("/", 3)
        if len(parts) == 4 and parts[1] == "key":
            scope["path"] = f"/{parts[3]}"
            scope["raw_path"] = scope["path"].encode()
            return parts[2].encode(errors="replace")
        kind, _, key = _header(scope, b"authorization").partition(" ")
        return key.strip().encode("latin-1") if kind.lower() == "bearer" else b""


class _Bounded:
    """A request that ends once its body is too long, whatever length it announced, if it announced one."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._num_bytes = 0
        self._started = self._closed = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._num_bytes += len(message.get("body", b""))
        if self._num_bytes <= _BODY_BYTES:
            return message
        if not self._started:
            response = _too_large()
            response.headers["connection"] = "close"
            await response(self._scope, self._receive, self.send)
        self._closed = True
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._closed:
            return
        self._started = self._started or message["type"] == "http.response.start"
        await self._send(message)


def _too_large() -> JSONResponse:
    return JSONResponse({"detail": f"a body may have {_BODY_BYTES} bytes"}, 413)


def _header(scope: Scope, name: bytes) -> str:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    return next((value.decode("latin-1") for key, value in headers if key == name), "")


def _announced(scope: Scope) -> int:
    text = _header(scope, b"content-length")
    return int(text) if text.isascii() and text.isdigit() else 0
