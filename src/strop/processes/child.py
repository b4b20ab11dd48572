"""Command -> a guarded child process, as its parent sees it: what it reports, what it prints, its end.

The child calls `open_channel` before anything else. Ours is one end of a socket: one line goes in, events
come out, and its closing makes the reaper clear up (see `processes.reaper`). What the child prints can never
be taken for an event.
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
from typing import IO, Any, Literal

from strop.processes.ending import exit_text
from strop.processes.reaper import Limited, Report, clear_after, guard

_MARK = "STROP_WORKER"
"""What all descendants of a child have in their environment, with its own value."""

_CHUNK_BYTES = 64 * 1024
_EVENT_LIMIT_BYTES = 2**20
_NUM_LAST_LINES = 20
_NONSENSE_CHARS = 200
_KILL_LIMIT_S = 10.0
_DRAIN_LIMIT_S = 2.0
MAX_LINE_BYTES = 16 * 1024
_SLACK = 4096
"""Kept beyond the limit until the line is masked, so that a secret is not cut in two before it is seen."""


def open_channel(
    descriptor: int, *, limits_of: Callable[[str], Limited | None] = lambda _: None
) -> tuple[Report, str]:
    """The child's side: read the parent's line and leave a reaper behind.

    `limits_of` makes of that line the limits that the reaper holds the child to.

    Returns:
        What sends events to the parent, and the line.

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


class NotStarted(Exception):
    """A child that did not become ready: it was `refused` by its own word, too `late`, or `ended`."""

    def __init__(self, how: Literal["refused", "late", "ended"], text: str) -> None:
        super().__init__(text)
        self.how: Literal["refused", "late", "ended"] = how


class Child:
    """One process with all its descendants.

    `on_ready` gets its event `ready`, which `start` waits for; an event `error` with a `text` in its place
    refuses the start. `on_event` gets all other events, and `on_line` each line that the child prints
    (stream, text). All three are called on the event loop's thread. `on_lost` is called in a thread when the
    reaper was killed, so that what it held can be cleared away.
    """

    def __init__(
        self,
        *,
        mask: Callable[[str], str],
        on_line: Callable[[str, str], None],
        on_ready: Callable[[dict[str, Any]], None] = lambda _: None,
        on_event: Callable[[dict[str, Any]], None] = lambda _: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._mask = mask
        self._on_line = on_line
        self._on_ready = on_ready
        self._on_event = on_event
        self._on_lost = on_lost
        self._id = secrets.token_hex(8)
        self._last_lines: deque[str] = deque(maxlen=_NUM_LAST_LINES)
        self._nonsense = ""
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.exited = asyncio.Event()

    async def start(
        self, command: Callable[[int], Sequence[str]], env: Mapping[str, str], line: str, *, limit_s: float
    ) -> None:
        """Spawn the process and wait until it is ready.

        Raises:
            OSError: it could not be spawned.
            NotStarted: it refused, ended, or was not ready after `limit_s`. No process is left then, nor when
                this is cancelled.
        """
        await self.spawn(command, env, line)
        try:
            async with asyncio.timeout(limit_s):
                await self._ready
        except TimeoutError:
            await self.kill()
            raise NotStarted("late", f"was not ready after {limit_s:g} s{self.last_words()}") from None
        except BaseException:
            await self.kill()
            raise

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
                self._writer.write_eof()  # the reaper takes it as the order to clear up
            try:
                await asyncio.wait_for(self.exited.wait(), _KILL_LIMIT_S)
            except TimeoutError:
                self._popen.kill()
                await self.exited.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def ending(self) -> str:
        """How the process ended, as the end of a sentence."""
        if self._nonsense:
            return f"was ended: it wrote to its channel what is not an event ({self._nonsense})"
        code = self._popen.poll()
        if code is None:
            return "is ending"
        return exit_text(128 - code if 128 < code <= 128 + signal.SIGRTMAX else code)  # as the reaper exits

    def last_words(self) -> str:
        """What it last wrote to stderr, to be added to a sentence; empty if nothing."""
        return "; its last lines:\n" + "\n".join(self._last_lines) if self._last_lines else ""

    async def _follow(self, reader: asyncio.StreamReader, drains: list[asyncio.Task[None]]) -> None:
        """Take events until the process has gone; then say so, also when the event loop is being closed.

        User code runs in the process that holds the other end: one that writes nonsense there is lost.
        """
        try:
            async for line in reader:
                self._take(json.loads(line))
        except ConnectionError:
            pass
        except Exception as error:  # noqa: BLE001 - a process edge: whatever came, the process has to end
            self._nonsense = f"{type(error).__name__}: {str(error)[:_NONSENSE_CHARS]}"
            self._popen.kill()
        finally:
            try:
                await self._see_off(drains)
            finally:
                if not self._ready.done():
                    self._fail("ended", f"{self.ending()}{self.last_words()}")
                self.exited.set()
        if self._popen.returncode < 0:  # the reaper itself was killed
            await asyncio.to_thread(self._clear)

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "ready" and not self._ready.done():
            self._on_ready(event)
            self._ready.set_result(None)
        elif kind == "error" and not self._ready.done():
            self._fail("refused", self._mask(event["text"]))
        else:
            self._on_event(event)

    def _fail(self, how: Literal["refused", "late", "ended"], text: str) -> None:
        self._ready.set_exception(NotStarted(how, text))
        self._ready.exception()  # whoever spawned it without waiting does not ask

    async def _see_off(self, drains: list[asyncio.Task[None]]) -> None:
        """Wait for the end of a process whose channel is closed, and read what it still had to say."""
        self._writer.close()
        while self._popen.poll() is None:  # noqa: ASYNC110 - the channel closes last: one or two rounds
            await asyncio.sleep(0.002)
        # A descendant that escaped the reaper may hold the pipes open.
        await asyncio.wait(drains, timeout=_DRAIN_LIMIT_S)
        for drain in drains:
            drain.cancel()

    def _clear(self) -> None:
        self._on_lost()
        clear_after(self._popen.pid, _MARK, self._id)

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


class LineSplitter:
    """Bytes of a pipe -> lines of text, each bounded, whatever comes.

    Of a progress bar's line it gives what a terminal shows last.

    >>> LineSplitter(mask=str).feed(b"one" + bytes([10]) + b"two")
    ['one']
    """

    def __init__(self, *, mask: Callable[[str], str]) -> None:
        self._mask = mask
        self._rest = bytearray()
        self._num_bytes = 0

    def feed(self, chunk: bytes) -> list[str]:
        """Returns the lines that `chunk` completed."""
        *ended, rest = chunk.split(b"\n")
        lines: list[str] = []
        for part in ended:
            self._add(part)
            lines.append(self._take())
        self._add(rest)
        return lines

    def end(self) -> list[str]:
        """Returns the last line, when it did not end with a newline."""
        return [self._take()] if self._rest else []

    def _add(self, part: bytes) -> None:
        self._num_bytes += len(part)
        self._rest += part[: MAX_LINE_BYTES + _SLACK - len(self._rest)]

    def _take(self) -> str:
        kept = bytes(self._rest).rstrip(b"\r").rpartition(b"\r")[2]
        num_bytes, self._num_bytes = self._num_bytes, 0
        self._rest.clear()
        text = self._mask(kept.decode("utf-8", "replace"))
        if num_bytes <= MAX_LINE_BYTES:
            return text
        return f"{text[:MAX_LINE_BYTES]} ... (cut; the line has {num_bytes} bytes)"
