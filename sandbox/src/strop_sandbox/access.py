"""Request -> whether it may come in: its size, the name it was sent to, its key.

A page in a browser of this machine may make a name of its own lead to loopback (DNS rebinding) and then speak
with whatever listens there. Where no key keeps it out, the name does.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Sequence

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_BODY_BYTES = 256 * 2**20
_OPEN = ("/v1/ping", "/healthz", "/metrics")


class AccessMiddleware:
    """Bounds bodies and asks for the key: a bearer token, or `/key/KEY` before the path.

    The second is for clients that send no header, as all of this protocol do. Without a key a request must
    name loopback or one of `trusted_hosts`.
    """

    def __init__(self, app: ASGIApp, api_key: str | None, trusted_hosts: Sequence[str] = ()) -> None:
        self._app, self._key = app, api_key.encode() if api_key is not None else None
        self._trusted = frozenset(host.lower() for host in trusted_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
        elif _announced(scope) > _BODY_BYTES:
            await _too_large()(scope, receive, send)
        else:
            bounded = _Bounded(scope, receive, send)
            await self._app(scope, bounded.receive, bounded.send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        given = self._given(scope)
        if self._key is None:
            name = _name(_header(scope, b"host"))
            if _is_loopback(name) or name in self._trusted:
                return None
            detail = f"this sandbox has no key and does not answer to the name {name!r}"
            fix = "ask it by 127.0.0.1 or localhost, start it with --trusted-host and that name, or set a key"
            return JSONResponse({"detail": f"{detail}\n  fix: {fix}"}, 403)
        if scope["path"] in _OPEN or secrets.compare_digest(given, self._key):
            return None
        return JSONResponse(
            {"detail": "a key is needed: Authorization: Bearer KEY, or /key/KEY before the path"}, 401
        )

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


def _name(host: str) -> str:
    """A `Host` header without its port.

    >>> _name("LocalHost:8090"), _name("[::1]:8090"), _name("evil.example.")
    ('localhost', '::1', 'evil.example')
    """
    bare = host.strip().lower()
    if bare.startswith("["):
        return bare[1:].partition("]")[0]
    return bare.partition(":")[0].removesuffix(".")


def _is_loopback(name: str) -> bool:
    """Also of no name at all: a browser always sends one."""
    if name in ("", "localhost") or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
