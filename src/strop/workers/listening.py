"""App + port -> a server; on the loopback interface unless told otherwise."""

from __future__ import annotations

import socket

import uvicorn

from strop.workers.app import App

_BACKLOG = 2048
_KEEP_ALIVE_S = 3600
"""Longer than a client keeps an idle connection: else a server may close the one that is just being used."""


def listen(port: int, *, host: str = "127.0.0.1") -> socket.socket:
    """Bind an IPv4 address, port 0 for a free one, and accept connections into the backlog from now on.

    Raises:
        OSError: the port is taken, or the address is not this machine's.
    """
    # The protocol is named because asyncio turns Nagle's delay (40 ms a reply) off only where it is.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


async def serve(app: App, listener: socket.socket) -> None:
    """Answer requests until SIGINT or SIGTERM."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
    )
    await uvicorn.Server(config).serve(sockets=[listener])
