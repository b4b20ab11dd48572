"""Raw ASGI requests -> requests with an id, single slashes, a bounded body and a known caller; or a refusal.

A body is bounded in bytes, and in the time that may pass without any of it.

Stands before the routes: a caller without a key learns so before his body is read.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strop.doors.failures import failure
from strop.errors import AccessError, ForbiddenError, RequestError, StropError
from strop.locales import msg
from strop.schema.access import Caller
from strop.service.settings import KIB, Limits

_log = logging.getLogger(__name__)

GUARDED = ("/api/", "/v1/", "/compatible-mode/")
"""Paths that need an API key. Signed uploads and function instances check their own tokens."""

OWN_TOKENS = frozenset({"/v1/traces"})
"""Paths below those that look at the sender's token themselves: it need not be an API key."""

Lookup = Callable[[str], Caller]
"""Text of a key -> whose it is. Raises AccessError."""

_MULTIPART_SLACK = 64 * KIB
_KEYLESS = msg(
    "no API key was sent; set DASHSCOPE_API_KEY (before Python imports dashscope) to a key of this server"
)


class RequestMiddleware:
    """The outermost layer of the app."""

    def __init__(self, app: ASGIApp, *, lookup: Lookup, limits: Limits) -> None:
        self._app = app
        self._lookup = lookup
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        _take_slashes_together(scope)
        state = scope.setdefault("state", {})
        state["request_id"] = identity = str(uuid.uuid4())
        path = scope["path"]
        guarded = _Reply(send, identity)
        try:
            if path.startswith(GUARDED) and path not in OWN_TOKENS:
                state["caller"] = await self._caller(scope)
            if "\0" in path or b"%00" in scope["query_string"]:  # no database takes it
                raise RequestError(
                    msg("the address contains a NUL character"), fix=msg("leave %00 out of it")
                )
            limit = self._limit(path)
            if _announced(scope) > limit:
                await failure(path, identity, 413, _too_large(limit))(scope, receive, guarded)
                return
            body = _Bounded(scope, receive, guarded, limit, self._limits.body_silence_s)
            await self._app(scope, body, guarded)
        except StropError as error:
            response = failure(path, identity, error.http_status, str(error))
            if error.http_status == 401:
                response.headers["www-authenticate"] = "Bearer"
            await response(scope, receive, guarded)
        except ClientDisconnect:  # it left, or its body was refused: either way it has its answer
            return
        except UnicodeEncodeError:  # JSON can hold half a character; no file, database or process can
            if not guarded.started:
                message = "the request holds text that is not valid Unicode: a lone surrogate"
                await failure(path, identity, 400, message)(scope, receive, guarded)
        except Exception:  # noqa: BLE001 - the HTTP edge: a 500 in JSON, and the traceback in the log
            _log.exception("%s %s failed (request_id %s)", scope["method"], path, identity)
            if not guarded.started:
                message = (
                    f"the server failed on this request; its log has the reason under request_id {identity}"
                )
                await failure(path, identity, 500, message)(scope, receive, guarded)

    async def _caller(self, scope: Scope) -> Caller:
        key = bearer(scope)
        if not key:
            raise AccessError(_KEYLESS)
        caller = await run_in_threadpool(self._lookup, key)
        wanted = _header(scope, b"x-dashscope-workspace")
        if wanted and wanted != caller.workspace_id:
            raise ForbiddenError(msg("this key does not open the workspace {wanted!r}", wanted=wanted))
        return caller

    def _limit(self, path: str) -> int:
        if path.startswith("/uploads/"):
            return self._limits.bundle_bytes
        if path in ("/api/v1/files", "/console/files"):
            return self._limits.file_bytes + _MULTIPART_SLACK
        if path.startswith("/functions/") and not path.endswith("/v1/traces"):
            return 64 * 1024 * KIB
        return self._limits.body_bytes


class _Reply:
    """`send` that adds the request id and knows whether the reply has begun or was given by somebody else."""

    def __init__(self, send: Send, identity: str) -> None:
        self._send = send
        self._identity = identity.encode()
        self.started = False
        self.closed = False

    async def __call__(self, message: Message) -> None:
        if self.closed:
            return
        if message["type"] == "http.response.start":
            self.started = True
            message.setdefault("headers", []).append((b"x-request-id", self._identity))
        await self._send(message)


class _Bounded:
    """`receive` that ends the request once its body is longer, or slower, than it may be."""

    def __init__(self, scope: Scope, receive: Receive, reply: _Reply, limit: int, silence_s: float) -> None:
        self._scope, self._receive, self._reply = scope, receive, reply
        self._limit, self._silence_s = limit, silence_s
        self._num_bytes = 0
        self._whole = False

    async def __call__(self) -> Message:
        try:
            # Behind its body a client says nothing until it leaves.
            async with asyncio.timeout(None if self._whole else self._silence_s):
                message = await self._receive()
        except TimeoutError:
            return await self._end(408, f"no byte of the body came for {self._silence_s:g} s")
        if message["type"] != "http.request":
            return message
        self._whole = not message.get("more_body", False)
        self._num_bytes += len(message.get("body", b""))
        return message if self._num_bytes <= self._limit else await self._end(413, _too_large(self._limit))

    async def _end(self, status: int, text: str) -> Message:
        if not self._reply.started:
            response = failure(self._scope["path"], self._scope["state"]["request_id"], status, text)
            response.headers["connection"] = "close"
            await response(self._scope, self._receive, self._reply)
        self._reply.closed = True
        return {"type": "http.disconnect"}


def _take_slashes_together(scope: Scope) -> None:
    """`/api/v1//files` is `/api/v1/files`: a base URL with a trailing slash doubles one in every path."""
    path: str = scope["path"]
    if "//" in path:
        scope["path"] = re.sub(r"/{2,}", "/", path)
        scope["raw_path"] = re.sub(rb"/{2,}", b"/", scope.get("raw_path") or path.encode())


def bearer(scope: Scope) -> str:
    kind, _, key = _header(scope, b"authorization").partition(" ")
    return key.strip() if kind.lower() == "bearer" else ""


def _header(scope: Scope, name: bytes) -> str:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    return next((value.decode("latin-1") for key, value in headers if key == name), "")


def _announced(scope: Scope) -> int:
    text = _header(scope, b"content-length")
    return int(text) if text.isascii() and text.isdigit() else 0


def _too_large(limit: int) -> str:
    return f"the body is longer than the {limit} bytes that are allowed here"
