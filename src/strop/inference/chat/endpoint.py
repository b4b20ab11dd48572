"""App + address -> a server in a running event loop, reading no more than a bound: for every chat address."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request

from strop.errors import StropError
from strop.inference.chat.errors import RequestRefused
from strop.locales import msg

_KEEP_ALIVE_S = 75
"""Seconds an idle connection stays: longer than clients keep theirs, so that none closes as it is reused."""

_BACKLOG = 2048

BODY_LIMIT = 16 * 2**20
"""Bytes. Far beyond any context in text form."""


def bind(host: str, port: int) -> socket.socket:
    """Take the address, without listening yet: until then a client is refused at once and not kept waiting.

    Raises:
        StropError: the address cannot be had.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise StropError(
            msg("cannot listen on {host}:{port}: {error}", host=host, port=port, error=error),
            fix=msg("choose another port, or 0 for a free one"),
        ) from error
    return listener


class GuestServer(uvicorn.Server):
    """A server that is a guest in a running event loop: leaves signals alone and tells when it listens.

    When it is told to exit, calls under way have `grace_s` seconds to end; `on_last_call` then hears of it,
    with a few seconds left for what it makes them say.
    """

    def __init__(
        self, app: Starlette, *, grace_s: float, on_last_call: Callable[[], None] | None = None
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=int(grace_s) + (5 if on_last_call else 0),
            )
        )
        self.listening = asyncio.Event()
        self._grace_s = grace_s
        self._on_last_call = on_last_call

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return contextlib.nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = None
        if self._on_last_call is not None:
            timer = asyncio.get_running_loop().call_later(self._grace_s, self._on_last_call)
        try:
            await super().shutdown(sockets)
        finally:
            if timer is not None:
                timer.cancel()


async def read_body(request: Request) -> bytes:
    """Raises:
    RequestRefused: 413 beyond `BODY_LIMIT`.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_LIMIT:
            raise RequestRefused(
                msg("the body exceeds {body_limit} bytes", body_limit=BODY_LIMIT),
                status=413,
                code="body_too_large",
            )
    return bytes(body)
