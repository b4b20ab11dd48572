"""HTTP request -> reply: DashScope's container protocol around one hosted processor.

`POST /api/v1` and `GET /health`, with the status codes and body shapes of DashScope's container, and with
what that lacks: a bearer token, a body limit, a deadline, checked outputs. Bare ASGI: a web framework around
two routes cost more time a call than all of its checks.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from pydantic import ValidationError

from strop.functions import validation_text
from strop.functions.ark import input_of_body, is_ark_body, reply_of_output
from strop.schema.function import INPUT_OF, FunctionInput, FunctionType
from strop.workers.executor import Failure, Outcome
from strop.workers.spec import WorkerSpec

MAX_BODY_BYTES = 64 * 1024 * 1024
_WATCH_AFTER_S = 0.05
"""After this long a call checks that its caller is still connected; shorter calls end before it helps."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
"""An ASGI application."""


class Served(Protocol):
    """What answers the calls: a loaded processor (`Executor`), or a pool of workers (`PooledExecutor`)."""

    @property
    def spec(self) -> WorkerSpec: ...

    @property
    def func_type(self) -> FunctionType: ...

    @property
    def class_name(self) -> str: ...

    @property
    def speaks_ark(self) -> bool: ...

    async def run(self, payload: FunctionInput, headers: Mapping[str, str]) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back: JSON."""

    status: int
    content: bytes
    allow: str = ""


def create_app(executor: Served, token: str) -> App:
    """Serve `executor` to whoever presents `token` as bearer."""
    expected = f"Bearer {token}".encode()
    calls = {"/api/v1", "/"} if executor.speaks_ark else {"/api/v1"}  # Ark's console posts to "/"

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        reply = await answer(scope, receive)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(reply.content)).encode()),
        ]
        if reply.allow:
            headers.append((b"allow", reply.allow.encode()))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.content})

    async def answer(scope: MutableMapping[str, Any], receive: Receive) -> Reply:
        path = scope["path"].rstrip("/") or "/"
        if path not in calls and path != "/health":
            return _detail(404, "Not Found")
        allowed = ("POST",) if path in calls else ("GET", "HEAD")
        if scope["method"] not in allowed:
            return Reply(405, _json({"detail": "Method Not Allowed"}), allow=", ".join(allowed))
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if not secrets.compare_digest(headers.get(b"authorization", b""), expected):
            return _detail(401, "Missing or wrong bearer token.")
        return await _called(executor, headers, receive) if path in calls else _health(executor)

    return app


def _health(executor: Served) -> Reply:
    values = {
        "status": "healthy",
        "func_type": executor.func_type,
        "processor": executor.class_name,
        "parser": INPUT_OF[executor.func_type].__name__,
    }
    return Reply(200, _json(values))


async def _called(executor: Served, headers: Mapping[bytes, bytes], receive: Receive) -> Reply:
    body = await _body(receive)
    if body is None:
        return _detail(413, f"The body exceeds {MAX_BODY_BYTES} bytes.")
    payload = _parsed(executor, body)
    if isinstance(payload, Reply):
        return payload
    told = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
    outcome = await _run_while_connected(executor, payload, told, receive)
    if isinstance(outcome, bytes) and "ark_http" in (payload.model_extra or {}):
        return Reply(200, _json(reply_of_output(json.loads(outcome))))
    return _reply(outcome)


async def _body(receive: Receive) -> bytearray | None:
    """The whole body; None when it is too long, nothing when the caller went before its end."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return bytearray()
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return body


def _parsed(executor: Served, body: bytearray) -> FunctionInput | Reply:
    try:
        # Not orjson: it turns integers beyond 64 bits into floats, and a ground truth may be one.
        values: object = _DECODER.decode(body.decode(json.detect_encoding(body), "surrogatepass"))
    except (ValueError, RecursionError) as error:
        return _detail(400, f"Invalid JSON body: {error}")
    given = cast("dict[str, object]", values).get("func_type") if isinstance(values, dict) else None
    if isinstance(given, str) and given != executor.func_type and given in INPUT_OF:
        found = f"func_type is {given}, but function {executor.spec.name!r} is a {executor.func_type}"
        return _detail(422, f"Request parsing error: {found}")
    try:
        given_values = cast("object", values)
        if executor.speaks_ark and is_ark_body(given_values):
            values = {**input_of_body(given_values), "ark_http": True}
        return INPUT_OF[executor.func_type].model_validate(values)
    except ValidationError as error:
        return _detail(422, f"Request parsing error: {validation_text(error, show_values=False)}")
    except ValueError as error:
        return _detail(422, f"Request parsing error: {error}")


async def _run_while_connected(
    executor: Served, payload: FunctionInput, headers: Mapping[str, str], receive: Receive
) -> Outcome:
    """Run the call; give up on it when the caller has gone."""
    loop = asyncio.get_running_loop()
    call = cast("asyncio.Task[None]", asyncio.current_task())
    watching: list[asyncio.Task[None]] = []
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        call.cancel()

    timer = loop.call_later(_WATCH_AFTER_S, lambda: watching.append(loop.create_task(watch())))
    try:
        return await executor.run(payload, headers)
    except asyncio.CancelledError:
        if not gone or call.uncancel() > 0:  # another canceller must see the call end
            raise
        return Failure(http_status=499, error_code="cancelled", message="The client closed the connection.")
    finally:
        timer.cancel()
        for task in watching:
            task.cancel()


def _reply(outcome: Outcome) -> Reply:
    if isinstance(outcome, bytes):
        return Reply(200, outcome)
    if outcome.http_status == 503:
        return _detail(503, outcome.message)
    body = {"message": outcome.message, "error_code": outcome.error_code, "stuck": outcome.stuck}
    return Reply(outcome.http_status, _json(body))


def _detail(status: int, text: str) -> Reply:
    return Reply(status, _json({"detail": text}))


def _json(values: object) -> bytes:
    return json.dumps(values, allow_nan=False).encode()


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
