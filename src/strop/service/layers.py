"""Requirements -> layers that are being built, one at a time, while requests go on."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

from strop.errors import FunctionError, StoreError
from strop.locales import msg
from strop.schema.entity import Layer, LayerStatus
from strop.store.database import Database
from strop.store.entities import building_layers, get_layer, record_layer, settle_layer
from strop.workers.layers import build_layer, build_log, layer_code, layer_python, requirement_lines

_log = logging.getLogger(__name__)

WAIT_LIMIT_S = 540.0
"""Below the 600 s after which DashScope's clients give up on a call."""

_POLL_S = 0.2


class LayerBuilder:
    """Builds in a thread of its own. What a dead server left unfinished is built again by the next one."""

    def __init__(self, database: Database, home: Path) -> None:
        self._database = database
        self._home = home
        self._queue: SimpleQueue[tuple[str, str] | None] = SimpleQueue()
        self._asked: set[str] = set()
        # A daemon: the server's end does not wait for pip. What is unfinished is built again by the next one.
        self._thread = threading.Thread(target=self._work, name="layers", daemon=True)
        self._thread.start()

    def take_up(self) -> None:
        """Go on with what was being built when the server ended."""
        with self._database.read() as session:
            unfinished = building_layers(session)
        for layer in unfinished:
            self._ask(layer.layer_code, layer.requirements)

    def create(self, workspace_id: str, requirements: str) -> Layer:
        """The layer of these requirements; its build has begun or is over. A failed one is tried again.

        Raises:
            FunctionError: requirements that no layer can have.
        """
        requirement_lines(requirements)
        code = layer_code(requirements)
        ready = layer_python(self._home, code) is not None
        layer = Layer(
            workspace_id=workspace_id,
            layer_code=code,
            requirements=requirements,
            status=LayerStatus.SUCCESS if ready else LayerStatus.BUILDING,
            log=build_log(self._home, code) if ready else "",
            created_at=datetime.now(UTC),
        )
        with self._database.write() as session:
            record_layer(session, layer)
        if not ready:
            self._ask(code, requirements)
        return layer

    async def finished(self, workspace_id: str, code: str) -> Path:
        """Wait for a layer. Returns its interpreter.

        Raises:
            FunctionError: its build failed, or takes too long to wait for.
        """
        give_up = time.monotonic() + WAIT_LIMIT_S
        while True:
            layer = await asyncio.to_thread(self._read, workspace_id, code)
            if layer.status is not LayerStatus.BUILDING:
                return usable(layer, self._home)
            if time.monotonic() > give_up:
                raise FunctionError(
                    msg("layer {code!r} is still being built", code=code), fix=msg("try again in a while")
                )
            await asyncio.sleep(_POLL_S)

    def close(self) -> None:
        """Builds that wait are dropped; the one that runs is left to itself."""
        while not self._queue.empty():
            self._queue.get()
        self._queue.put(None)

    def _read(self, workspace_id: str, code: str) -> Layer:
        with self._database.read() as session:
            return get_layer(session, code, workspace_id=workspace_id)

    def _ask(self, code: str, requirements: str) -> None:
        if code not in self._asked:
            self._asked.add(code)
            self._queue.put((code, requirements))

    def _work(self) -> None:
        while (build := self._queue.get()) is not None:
            self._build(*build)

    def _build(self, code: str, requirements: str) -> None:
        try:
            try:
                build_layer(self._home, code, requirements)
                status, log = LayerStatus.SUCCESS, build_log(self._home, code)
            except (FunctionError, OSError) as error:
                status, log = LayerStatus.FAILED, f"{build_log(self._home, code)}\n{error}".strip()
            with self._database.write() as session:
                settle_layer(session, code, status, log)
        except StoreError:
            _log.exception("layer %s: how its build ended could not be written", code)
        finally:
            self._asked.discard(code)


def usable(layer: Layer, home: Path) -> Path:
    """The interpreter of a layer that was built.

    Raises:
        FunctionError: it failed, with the end of its log; or its folder has gone.
    """
    if layer.status is LayerStatus.FAILED:
        tail = "\n".join(layer.log.splitlines()[-15:])
        raise FunctionError(
            msg("layer {layer_code!r} could not be built:\n{tail}", layer_code=layer.layer_code, tail=tail),
            fix=msg("fix requirements.txt and create the layer again"),
        )
    python = layer_python(home, layer.layer_code)
    if python is None:
        raise FunctionError(
            msg("layer {layer_code!r} is not on this machine", layer_code=layer.layer_code),
            fix=msg("create it again"),
        )
    return python
