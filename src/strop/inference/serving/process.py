"""Served models + an address -> answers, until a signal or the engine ends them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable

from strop.inference.chat.endpoint import GuestServer
from strop.inference.serving.app import create_app
from strop.inference.serving.models import ServedModels

GRACE_S = 30.0
"""Seconds that answers under way have to end once the process is told to stop."""

_WATCH_S = 0.5


async def serve(
    models: ServedModels,
    listener: socket.socket,
    *,
    api_key: str | None,
    on_ready: Callable[[int], None],
    grace_s: float = GRACE_S,
) -> None:
    """Answer until SIGINT or SIGTERM; a second signal ends what is under way at once.

    `on_ready` is called with the port, once the address answers.

    Raises:
        EngineError: the engine has stopped by itself; nothing can be answered any more.
    """
    server = GuestServer(create_app(models, api_key=api_key), grace_s=grace_s, on_last_call=models.stop_all)

    def stop() -> None:
        if server.should_exit:
            models.stop_all()
            server.force_exit = True
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    watching = asyncio.create_task(_engine_end(models, stop))
    try:
        await _ready(server, serving, listener, on_ready)
        await serving
    finally:
        watching.cancel()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    failure = models.base.failure()
    if failure is not None:
        raise failure


async def _ready(
    server: GuestServer,
    serving: asyncio.Task[None],
    listener: socket.socket,
    on_ready: Callable[[int], None],
) -> None:
    listening = asyncio.create_task(server.listening.wait())
    await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
    if listening.done():
        on_ready(listener.getsockname()[1])
    listening.cancel()


async def _engine_end(models: ServedModels, stop: Callable[[], None]) -> None:
    """An engine that has failed answers nothing again: better to end, and be started anew, than to refuse."""
    with contextlib.suppress(asyncio.CancelledError):
        while models.base.failure() is None:  # noqa: ASYNC110 - the failure happens in a thread
            await asyncio.sleep(_WATCH_S)
        stop()
