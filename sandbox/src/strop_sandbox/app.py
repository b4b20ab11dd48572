"""HTTP -> the sandbox: SandboxFusion's paths, bodies and errors, so that its clients notice no difference.

A body that is not a request: 422; one that makes no sense: its status with {detail}; too much at once: 429
with Retry-After; a failure of ours: 500 with {detail, traceback}. A program's end is always a 200.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.requests import ClientDisconnect

from strop_sandbox.access import AccessMiddleware
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
_OURS = 500
_Answer = TypeVar("_Answer")


def create_app(
    sandbox: Sandbox,
    *,
    datasets: Datasets | None = None,
    test_files: TestFiles,
    api_key: str | None = None,
    trusted_hosts: Sequence[str] = (),
) -> FastAPI:
    """The routes of one sandbox, which opens and closes with the app.

    Without `api_key` it is for this machine: it refuses requests sent to another name than loopback's and
    `trusted_hosts`.
    """
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
    app.add_middleware(AccessMiddleware, api_key=api_key, trusted_hosts=trusted_hosts)
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
