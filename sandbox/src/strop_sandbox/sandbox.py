"""Requests -> programs run in boxes: the pool, the turns and the toolchains of one server, wired."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

from strop_sandbox.box import Box, BoxEnded, BoxError
from strop_sandbox.errors import RequestError
from strop_sandbox.isolation import Isolation
from strop_sandbox.limits import MIB, OVERSUBSCRIPTION, Limits
from strop_sandbox.metrics import Metrics
from strop_sandbox.pool import Pool
from strop_sandbox.programs import Program, answer, decoded_files, failure
from strop_sandbox.slots import Slots
from strop_sandbox.toolchains import ToolchainError, Toolchains
from strop_sandbox.wire import RunCodeRequest, RunCodeResponse

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_TRIES = 3
"""How often a request is begun whose boxes are lost."""


async def until_kept(work: Callable[[], Awaitable[_Result]]) -> _Result:
    """What comes of `work`, begun anew in other boxes where those it had were lost under it.

    That is the sandbox's own affair, and a program that was cut off by it has left nothing anywhere. A box
    that its program ended, by the memory that it fills or for want of walls, is another error.

    Raises:
        BoxEnded: they were lost each time.
    """
    tries_left = _TRIES
    while True:
        tries_left -= 1
        try:
            return await work()
        except (BoxEnded, ExceptionGroup) as error:
            if not tries_left or not _is_loss(error):
                raise
            _log.warning("a request is begun anew: %s", error)


def _is_loss(error: Exception) -> bool:
    """Whether a box was lost, and nothing else happened."""
    if isinstance(error, ExceptionGroup):
        return all(map(_is_loss, cast("ExceptionGroup[Exception]", error).exceptions))
    return isinstance(error, BoxEnded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much one server takes on.

    Units:
        `memory_mb` MiB that a program may use which names no limit, and at most; `max_running` programs at
        once (0: a multiple of the processors); `max_waiting` requests.
    """

    memory_mb: int = 1024
    max_running: int = 0
    max_waiting: int = 1000
    num_ready: int = 0

    @property
    def running(self) -> int:
        return self.max_running or OVERSUBSCRIPTION * (os.cpu_count() or 1)

    @property
    def ready(self) -> int:
        return self.num_ready or self.running


class Sandbox:
    """What a server holds. `open` before use, `close` after."""

    def __init__(
        self, isolation: Isolation, toolchains: Toolchains, settings: Settings | None = None
    ) -> None:
        self.settings = settings or Settings()
        self.isolation, self.toolchains = isolation, toolchains
        self.pool = Pool(isolation, self.settings.ready)
        self.slots = Slots(self.settings.running, self.settings.max_waiting)
        self.metrics = Metrics(self.pool, self.slots)

    async def open(self) -> None:
        await self.pool.open()

    async def close(self) -> None:
        try:
            await self.pool.close()
        finally:
            self.isolation.close()

    @asynccontextmanager
    async def box(self, key: Hashable) -> AsyncGenerator[Box]:
        """A fresh box, once it is this key's turn; the turn ends with the block."""
        async with self.slots.turn(key), self.pool.box() as box:
            yield box

    def limits(self, time_s: float, memory_mb: int = -1) -> Limits:
        """Raises:
        RequestError: more memory than this server gives to a program.
        """
        if memory_mb > self.settings.memory_mb:
            raise RequestError(
                f"memory_limit_MB is {memory_mb}; a program gets {self.settings.memory_mb} MiB here at most",
                fix="ask for less, or start the server with a higher --memory-mb",
            )
        chosen = memory_mb if memory_mb > 0 else self.settings.memory_mb
        return Limits(time_s=time_s, memory_bytes=chosen * MIB)

    async def run_code(self, request: RunCodeRequest) -> RunCodeResponse:
        """Compile and run one program.

        Raises:
            RequestError, FileError: the request makes no sense as it stands.
        """
        run_limits = self.limits(request.run_timeout, request.memory_limit_MB)
        files = decoded_files(request.files)
        started = time.monotonic()
        try:
            program = Program(
                request.code,
                self.toolchains.of(request.language),
                compile_limits=self.limits(request.compile_timeout),
                run_limits=run_limits,
                files=files,
            )
            response = await until_kept(lambda: self._once(program, request))
        except (ToolchainError, BoxError) as error:
            response = failure(error)
        self.metrics.ran(request.language, response, time.monotonic() - started)
        return response

    async def _once(self, program: Program, request: RunCodeRequest) -> RunCodeResponse:
        async with self.box(asyncio.current_task()) as box:
            ran = await program.run(box, request.stdin) if await program.prepare(box) else None
            wanted = request.fetch_files if box.is_alive else []
            fetched, left_out = await box.fetch(wanted) if wanted else ({}, [])
        message = f"too large to be fetched: {', '.join(left_out)}" if left_out else ""
        return answer(program.compiled, ran, fetched, message)
