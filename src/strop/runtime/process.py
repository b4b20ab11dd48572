"""Spec -> a running worker process, as the pool's side sees it: its address, its output, its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import IO, Any

from strop.errors import FunctionError
from strop.runtime.lines import LineSplitter
from strop.runtime.masking import Mask
from strop.runtime.spec import WorkerSpec, worker_environment
from strop.schema.function import FunctionType

OnLine = Callable[[str, str, str], None]
"""(component, stream, text); called on the event loop's thread, a line at a time, and must return quickly."""

_CHUNK_BYTES = 64 * 1024
_EVENT_LIMIT_BYTES = 2**20
_NUM_LAST_LINES = 20
_KILL_LIMIT_S = 10.0
_DRAIN_LIMIT_S = 2.0


class WorkerProcess:
    """One worker. `num_in_flight` and `draining` are its instance's book-keeping."""

    def __init__(self, spec: WorkerSpec, *, job_id: str, mask: Mask, on_line: OnLine) -> None:
        self._spec = spec
        self._job_id = job_id
        self._mask = mask
        self._on_line = on_line
        self._started: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._last_lines: deque[str] = deque(maxlen=_NUM_LAST_LINES)
        self._on_stuck: Callable[[], None] = lambda: None
        self.token = secrets.token_urlsafe(32)
        self.exited = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()
        self.num_in_flight = 0
        self.draining = False
        self.port = 0
        self.func_type = FunctionType.ROLLOUT

    async def start(self, *, limit_s: float, on_stuck: Callable[[], None]) -> None:
        """Start the process and wait until it listens.

        Raises:
            FunctionError: the class could not be loaded or set up, the process died, or `limit_s` has passed.
            No process is left then, nor when this is cancelled.
        """
        self._on_stuck = on_stuck
        await self._spawn()
        try:
            async with asyncio.timeout(limit_s):
                ready = await self._started
        except TimeoutError:
            await self.kill()
            raise FunctionError(
                f"function {self._spec.name!r} was not ready after {limit_s:g} s{self._last_words()}",
                fix="look at its import and its setup()",
            ) from None
        except BaseException:
            await self.kill()
            raise
        self.port = ready["port"]
        self.func_type = FunctionType(ready["func_type"])

    async def kill(self) -> None:
        """End the worker with all its descendants; returns when they are gone and their output was read."""
        if not self.exited.is_set():
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.write_eof()  # the guardian takes it as the order to clear up
            try:
                await asyncio.wait_for(self.exited.wait(), _KILL_LIMIT_S)
            except TimeoutError:
                self._popen.kill()
                await self.exited.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def take(self) -> None:
        """Count a call that is being sent."""
        self.num_in_flight += 1
        self.idle.clear()

    def release(self) -> None:
        """Count it off."""
        self.num_in_flight -= 1
        if self.num_in_flight == 0:
            self.idle.set()

    def exit_text(self) -> str:
        """How the process ended, and what it last wrote to stderr."""
        return f"the worker process of function {self._spec.name!r} {self._ending()}{self._last_words()}"

    def _ending(self) -> str:
        code = self._popen.poll()
        if code is None:
            return "is ending"
        if 128 < code <= 128 + signal.SIGRTMAX:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(code - 128).name}"
        return f"exited with status {code}" if code >= 0 else f"was killed by signal {-code}"

    def _last_words(self) -> str:
        return "; its last lines:\n" + "\n".join(self._last_lines) if self._last_lines else ""

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            # -P: the root comes into sys.path in the worker, after the libraries that Strop needs.
            self._popen = subprocess.Popen(  # noqa: ASYNC220 - a few ms; asyncio's own does the same
                [
                    str(self._spec.python or sys.executable),
                    "-P",
                    "-m",
                    "strop.runtime.worker",
                    str(theirs.fileno()),
                ],
                bufsize=0,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                env=worker_environment(self._spec, self._job_id),
                start_new_session=True,
            )
        finally:
            theirs.close()
        try:
            reader, self._writer = await asyncio.open_connection(sock=ours, limit=_EVENT_LIMIT_BYTES)
        except BaseException:
            ours.close()
            self._popen.kill()
            self._popen.communicate()
            raise
        self._writer.write(f"{os.getpid()} {self._spec.to_json(self.token)}\n".encode())
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        drains = [
            asyncio.create_task(self._drain(self._popen.stdout, "stdout")),
            asyncio.create_task(self._drain(self._popen.stderr, "stderr")),
        ]
        self._tasks = [*drains, asyncio.create_task(self._follow(reader, drains))]

    async def _follow(self, reader: asyncio.StreamReader, drains: list[asyncio.Task[None]]) -> None:
        """Take events until the process has gone; then say so."""
        with contextlib.suppress(ConnectionError):
            async for line in reader:
                self._take_event(json.loads(line))
        while self._popen.poll() is None:  # noqa: ASYNC110 - the channel closes last: one or two rounds
            await asyncio.sleep(0.002)
        self._writer.close()
        # A descendant that escaped the guardian may hold the pipes open.
        await asyncio.wait(drains, timeout=_DRAIN_LIMIT_S)
        for drain in drains:
            drain.cancel()
        if not self._started.done():
            self._started.set_exception(FunctionError(self.exit_text()))
        self.exited.set()

    def _take_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "stuck":
            self._on_stuck()
        elif not self._started.done():
            if event["event"] == "ready":
                self._started.set_result(event)
            else:
                self._started.set_exception(FunctionError(self._mask(event["text"])))

    async def _drain(self, pipe: IO[bytes], stream: str) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        lines = LineSplitter(mask=self._mask)
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                self._emit(stream, lines.feed(chunk))
                await asyncio.sleep(0)  # a flood of output leaves the loop to others, too
            self._emit(stream, lines.end())
        finally:
            transport.close()

    def _emit(self, stream: str, lines: list[str]) -> None:
        if stream == "stderr":
            self._last_lines.extend(lines)
        for text in lines:
            try:
                self._on_line(f"function:{self._spec.name}", stream, text)
            except Exception as error:  # noqa: BLE001 - a process edge: an unread pipe would stall the worker
                print(f"strop: a log line was lost: {error!r}", file=sys.stderr)
