"""HTTP request -> reply: DashScope's container protocol around one hosted processor.

`POST /api/v1` and `GET /health`, with the status codes and body shapes of DashScope's container, and with
what that lacks: a bearer token, a body limit, a deadline, checked outputs. Starlette and not FastAPI: the two
routes read raw bodies, and a worker starts 0.4 s sooner.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from typing import Protocol, cast

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from strop.functions import validation_text
from strop.functions.ark import input_of_body, is_ark_body, reply_of_output
from strop.runtime.hosting import Failure, Outcome
from strop.runtime.spec import WorkerSpec
from strop.schema.function import INPUT_OF, FunctionInput, FunctionType

MAX_BODY_BYTES = 64 * 1024 * 1024


class Served(Protocol):
    """What answers the calls: a loaded processor (`Host`), or a pool of workers (`PooledHost`)."""

    @property
    def spec(self) -> WorkerSpec: ...

    @property
    def func_type(self) -> FunctionType: ...

    @property
    def class_name(self) -> str: ...

    @property
    def speaks_ark(self) -> bool: ...

    async def run(self, payload: FunctionInput, headers: Mapping[str, str]) -> Outcome: ...


def create_app(host: Served, token: str) -> Starlette:
    """Serve `host` to whoever presents `token` as bearer."""

    async def health(request: Request) -> Response:
        if not _authorised(request, token):
            return _UNAUTHORISED
        return JSONResponse(
            {
                "status": "healthy",
                "func_type": host.func_type,
                "processor": host.class_name,
                "parser": INPUT_OF[host.func_type].__name__,
            }
        )

    async def call(request: Request) -> Response:
        if not _authorised(request, token):
            return _UNAUTHORISED
        body = await _body(request)
        if body is None:
            return _detail(413, f"The body exceeds {MAX_BODY_BYTES} bytes.")
        payload = _parsed(host, body)
        if isinstance(payload, Response):
            return payload
        outcome = await _run_while_connected(host, payload, request)
        if isinstance(outcome, bytes) and "ark_http" in (payload.model_extra or {}):
            return JSONResponse(reply_of_output(json.loads(outcome)))
        return _reply(outcome)

    paths = ["/api/v1", "/"] if host.speaks_ark else ["/api/v1"]  # Ark's console posts to "/"
    return Starlette(
        routes=[
            Route("/health", health, methods=["GET"]),
            *(Route(path, call, methods=["POST"]) for path in paths),
        ]
    )


def _authorised(request: Request, token: str) -> bool:
    given = request.headers.get("authorization", "")
    return secrets.compare_digest(given.encode(), f"Bearer {token}".encode())


async def _body(request: Request) -> bytes | None:
    """The whole body; None when it is too long."""
    chunks: list[bytes] = []
    num_bytes = 0
    async for chunk in request.stream():
        num_bytes += len(chunk)
        if num_bytes > MAX_BODY_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _parsed(host: Served, body: bytes) -> FunctionInput | Response:
    try:
        # Not orjson: it turns integers beyond 64 bits into floats, and a ground truth may be one.
        values: object = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return _detail(400, f"Invalid JSON body: {error}")
    given = cast("dict[str, object]", values).get("func_type") if isinstance(values, dict) else None
    if isinstance(given, str) and given in set(FunctionType) - {host.func_type}:
        found = f"func_type is {given}, but function {host.spec.name!r} is a {host.func_type}"
        return _detail(422, f"Request parsing error: {found}")
    try:
        given_values = cast("object", values)
        if host.speaks_ark and is_ark_body(given_values):
            values = {**input_of_body(given_values), "ark_http": True}
        return INPUT_OF[host.func_type].model_validate(values)
    except ValidationError as error:
        return _detail(422, f"Request parsing error: {validation_text(error, show_values=False)}")
    except ValueError as error:
        return _detail(422, f"Request parsing error: {error}")


async def _run_while_connected(host: Served, payload: FunctionInput, request: Request) -> Outcome:
    """Run the call; give up on it when the caller has gone."""
    work = asyncio.create_task(host.run(payload, request.headers))
    gone = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        return Failure(http_status=499, error_code="cancelled", message="The client closed the connection.")
    finally:
        gone.cancel()
        work.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _reply(outcome: Outcome) -> Response:
    if isinstance(outcome, bytes):
        return Response(outcome, media_type="application/json")
    if outcome.http_status == 503:
        return _detail(503, outcome.message)
    body = {"message": outcome.message, "error_code": outcome.error_code, "stuck": outcome.stuck}
    return JSONResponse(body, status_code=outcome.http_status)


def _detail(status: int, text: str) -> Response:
    return JSONResponse({"detail": text}, status_code=status)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_UNAUTHORISED = _detail(401, "Missing or wrong bearer token.")
