"""A command -> a server of its own in this process: on loopback, on any free port, with a key that nobody else has.

Commands that look at jobs use one where no server runs. It trains nothing.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from strop.errors import StropError
from strop.locales import msg

if TYPE_CHECKING:
    from strop.client import Client

_END_S = 60.0
"""Within this the last replies are through."""


class _Server(uvicorn.Server):
    """One whose start can be waited for."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self._is_up.set()

    def wait(self) -> None:
        self._is_up.wait()
        if not self.started:
            raise StropError(msg("the command's own server could not start"))


@contextmanager
def private_server() -> Generator[Client]:
    """Serve in a thread while the block runs.

    Raises:
        StropError: the store cannot be opened, or no port can be had.
    """
    from strop.cli.checking import PipelineFlow
    from strop.client import Client
    from strop.doors.app import create_app
    from strop.service.settings import settings_from_environment
    from strop.workers.listening import listen

    key = secrets.token_urlsafe(32)
    settings = settings_from_environment(own_key=key, supervise=False)
    app = create_app(settings, PipelineFlow())
    listener = listen(0)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=1, timeout_keep_alive=75
    )
    server = _Server(config)
    thread = threading.Thread(
        target=lambda: server.run(sockets=[listener]), name="private server", daemon=True
    )
    thread.start()
    try:
        server.wait()
        with Client(f"http://127.0.0.1:{listener.getsockname()[1]}", key) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(_END_S)
        listener.close()


@contextmanager
def client_of(server: str | None) -> Generator[Client]:
    """The server that is named or that runs here; else one of this command's own, that shows what the store has.

    Raises:
        StropError: a server is named that cannot be reached, or no key for it is known.
    """
    from strop.client import Client
    from strop.client.place import is_named, running_server

    if is_named(server) or running_server() is not None:
        with Client(server) as client:
            yield client
        return
    with private_server() as client:
        yield client
