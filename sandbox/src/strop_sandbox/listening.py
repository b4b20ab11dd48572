"""App + address -> a server until SIGINT or SIGTERM, which says so once it answers."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from strop_sandbox.errors import SandboxError

_KEEP_ALIVE_S = 75
"""Seconds an idle connection stays: longer than clients keep theirs, so that none closes as it is reused."""

_GRACE_S = 5
"""Seconds that requests under way have to end."""


def bind(host: str, port: int) -> socket.socket:
    """Take the address, without listening yet: until then a client is refused at once and not kept waiting.

    Raises:
        SandboxError: the address cannot be had.
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
        raise SandboxError(
            f"cannot listen on {host}:{port}: {error}", fix="choose another port, or 0 for a free one"
        ) from error
    return listener


def run_server(app: ASGIApp, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until a signal; `on_ready` is called once requests are answered."""

    class Announced(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_ready()

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )
    # uvicorn raises the signal again when it is through; Python's default would end all here at once.
    signal.signal(signal.SIGTERM, _end)
    Announced(config).run(sockets=[listener])


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)
