"""Command -> a guarded child process, as its parent sees it: what it reports, what it prints, its end.

The child calls `open_channel` before anything else. Ours is one end of a socket: one line goes in, events
come out, and its closing makes the guardian clear up (see `workers.reaper`). What the child prints can
never be taken for an event.
"""

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
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from strop.workers.lines import LineSplitter
from strop.workers.reaper import Limited, Report, clear_after, guard

_MARK = "STROP_WORKER"
"""What all descendants of a child have in their environment, with its own value."""

_CHUNK_BYTES = 64 * 1024
_EVENT_LIMIT_BYTES = 2**20
_NUM_LAST_LINES = 20
_NONSENSE_CHARS = 200
_KILL_LIMIT_S = 10.0
_DRAIN_LIMIT_S = 2.0


def open_channel(
    descriptor: int, *, limits_of: Callable[[str], Limited | None] = lambda _: None
) -> tuple[Report, str]:
    """The child's side: read the parent's line, leave a guardian behind, give what sends events and the line.

    `limits_of` makes of that line the limits that the guardian holds the child to.

    Concurrency:
        Call it before any thread exists; it forks.
    """
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    with channel.makefile() as lines:
        parent_pid, text = lines.readline().split(" ", 1)

    def report(**event: object) -> None:
        channel.sendall(json.dumps(event).encode() + b"\n")

    guard(channel, int(parent_pid), report=report, limited=limits_of(text))
    return report, text


class Child:
    """One process with all its descendants.

    `on_event` hears its events, `on_line` each line it prints (stream, text) and `on_exit` its end, before
    `exited` is set; all on the event loop's thread. `on_lost` is called in a thread when the guardian was
    killed, so that what it held can be cleared away.
    """

    def __init__(
        self,
        *,
        mask: Callable[[str], str],
        on_event: Callable[[dict[str, Any]], None],
        on_line: Callable[[str, str], None],
        on_exit: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._mask = mask
        self._on_event = on_event
        self._on_line = on_line
        self._on_exit = on_exit
        self._on_lost = on_lost
        self._id = secrets.token_hex(8)
        self._last_lines: deque[str] = deque(maxlen=_NUM_LAST_LINES)
        self._nonsense = ""
        self.exited = asyncio.Event()

    async def spawn(self, command: Callable[[int], Sequence[str]], env: Mapping[str, str], line: str) -> None:
        """Start the process; `command` is given the file descriptor of the child's end of the channel.

        Raises:
            OSError: it could not be started.
        """
        ours, theirs = socket.socketpair()
        try:
            self._popen = subprocess.Popen(  # noqa: ASYNC220 - a few ms; asyncio's own does the same
                command(theirs.fileno()),
                bufsize=0,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                env={**env, _MARK: self._id},
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            reader, self._writer = await asyncio.open_connection(sock=ours, limit=_EVENT_LIMIT_BYTES)
        except BaseException:
            ours.close()
            self._popen.kill()
            self._popen.communicate()
            raise
        self._writer.write(f"{os.getpid()} {line}\n".encode())
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        drains = [
            asyncio.create_task(self._drain(self._popen.stdout, "stdout")),
            asyncio.create_task(self._drain(self._popen.stderr, "stderr")),
        ]
        self._tasks = [*drains, asyncio.create_task(self._follow(reader, drains))]

    async def kill(self) -> None:
        """End it with all its descendants; returns when they are gone and their output was read."""
        if not self.exited.is_set():
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.write_eof()  # the guardian takes it as the order to clear up
            try:
                await asyncio.wait_for(self.exited.wait(), _KILL_LIMIT_S)
            except TimeoutError:
                self._popen.kill()
                await self.exited.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def ending(self) -> str:
        """How the process ended, as the end of a sentence."""
        if self._nonsense:
            return f"was ended: what came on its channel is no event ({self._nonsense})"
        code = self._popen.poll()
        if code is None:
            return "is ending"
        if 128 < code <= 128 + signal.SIGRTMAX:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(code - 128).name}"
        return f"exited with status {code}" if code >= 0 else f"was killed by signal {-code}"

    def last_words(self) -> str:
        """What it last wrote to stderr, to be added to a sentence; empty if nothing."""
        return "; its last lines:\n" + "\n".join(self._last_lines) if self._last_lines else ""

    async def _follow(self, reader: asyncio.StreamReader, drains: list[asyncio.Task[None]]) -> None:
        """Take events until the process has gone; then say so, also when the event loop is being closed.

        User code runs in the process that holds the other end: one that writes nonsense there is lost.
        """
        try:
            async for line in reader:
                self._on_event(json.loads(line))
        except ConnectionError:
            pass
        except Exception as error:  # noqa: BLE001 - a process edge: whatever came, the process has to end
            self._nonsense = f"{type(error).__name__}: {str(error)[:_NONSENSE_CHARS]}"
            self._popen.kill()
        finally:
            try:
                await self._see_off(drains)
            finally:
                self._say_ended()
        if self._popen.returncode < 0:  # the guardian itself was killed
            await asyncio.to_thread(self._clear)

    def _say_ended(self) -> None:
        try:
            self._on_exit()
        finally:
            self.exited.set()

    async def _see_off(self, drains: list[asyncio.Task[None]]) -> None:
        """Wait for the end of a process whose channel is closed, and read what it still had to say."""
        self._writer.close()
        while self._popen.poll() is None:  # noqa: ASYNC110 - the channel closes last: one or two rounds
            await asyncio.sleep(0.002)
        # A descendant that escaped the guardian may hold the pipes open.
        await asyncio.wait(drains, timeout=_DRAIN_LIMIT_S)
        for drain in drains:
            drain.cancel()

    def _clear(self) -> None:
        self._on_lost()
        clear_after(self._popen.pid, f"{_MARK}={self._id}")

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
                self._on_line(stream, text)
            except Exception as error:  # noqa: BLE001 - a process edge: an unread pipe would stall the child
                print(f"strop: a log line was lost: {error!r}", file=sys.stderr)
