"""A command that starts `sandbox.zygote` -> boxes on demand: their channel, and a handle of their process.

The server's side. The zygote ends with the socket to it, and with it every box: also when this process is
killed without warning.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from strop_sandbox.errors import SandboxError

_log = logging.getLogger(__name__)
_READY_S = 20.0
_LOOK_S, _NUM_LOOKS = 0.01, 50
"""Until the end of a process shows after its files have been closed."""
_TRIES = 3
HUNG_S = 10.0
"""A zygote that was asked and has made no box for so long is ended, and another one asked."""


class ZygoteGone(SandboxError):
    """It has ended, or stands still: another one must be asked."""

    boundary = "sandbox"


class Zygote:
    """What makes boxes: a process that is started anew where it has ended or stands still. `close` it.

    Concurrency:
        One event loop, which making the first one blocks for as long as a Python takes to start; another
        that takes its place is made in a thread.
    """

    def __init__(self, command: Sequence[str], plan: Mapping[str, Any]) -> None:
        self._command, self._plan = list(command), json.dumps(plan).encode()
        self._one = _Started(self._command, self._plan)
        self._coming: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def pid(self) -> int:
        return self._one.pid

    async def fork(self, uid: int, words: int) -> tuple[socket.socket, int]:
        """A new box of user `uid`: the channel to its init process, and a pidfd of its process 1.

        `words` is a file that is told why, if no box can be made.

        Raises:
            SandboxError: the box was not made.
        """
        tries_left = _TRIES
        while True:
            asked = self._one
            tries_left -= 1
            try:
                return await asked.fork(uid, words)
            except ZygoteGone as gone:
                if not tries_left or self._closed:
                    raise
                if self._coming is None and self._one is asked:  # the first of those who asked it
                    _log.warning("%s; another one takes its place", gone.message)
                    self._coming = asyncio.ensure_future(self._start_instead_of(asked))
                    self._coming.add_done_callback(self._came)
                if self._coming is not None:
                    await asyncio.shield(self._coming)

    async def _start_instead_of(self, gone: _Started) -> None:
        gone.end()
        await asyncio.to_thread(gone.close)
        one = await asyncio.to_thread(_Started, self._command, self._plan)
        if self._closed:
            await asyncio.to_thread(one.close)
            raise ZygoteGone("what makes boxes has ended")
        self._one = one

    def _came(self, task: asyncio.Task[None]) -> None:
        self._coming = None
        if not task.cancelled():
            task.exception()  # told to those who wait for it; where nobody does, the next one tries again

    def close(self) -> None:
        """Returns when it has ended, and every box with it; no other one is started from now on."""
        self._closed = True
        self._one.close()


class _Started:
    """One process, from its start to its end."""

    def __init__(self, command: Sequence[str], plan: bytes) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed with it
        self._num_made = 0
        self._ended = self._closed = False
        self._closing = threading.Lock()
        self.pid = self.pidfd = -1
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=self._words,
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
        except BaseException:
            self._control.close()
            self._words.close()
            raise
        try:
            self._greet(plan)
        except BaseException:
            self.close()
            raise

    def _greet(self, plan: bytes) -> None:
        self._control.settimeout(_READY_S)
        try:
            self._control.send(plan)
            said, descriptors, _, _ = socket.recv_fds(self._control, 16, 1)
        except OSError as error:
            raise SandboxError(f"it does not answer: {error}") from error
        if said != b"ready" or not descriptors:
            raise SandboxError(f"it did not start: {self._last_words()}")
        self.pidfd = descriptors[0]
        self.pid = pid_of(self.pidfd)
        self._control.setblocking(False)

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_READY_S)
        self._words.seek(0)
        lines = self._words.read(1 << 16).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"status {self._process.returncode}"

    async def fork(self, uid: int, words: int) -> tuple[socket.socket, int]:
        """As `Zygote.fork`.

        Raises:
            ZygoteGone: it has ended, or stands still.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                await self._ask(json.dumps({"uid": uid}).encode(), [theirs.fileno(), words])
            ours.setblocking(False)
            await self._moving(lambda: _readable(ours))
            _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
            if not descriptors:
                await self._refuse_if_ended()
                raise SandboxError("a box was not made")
        except BaseException:
            ours.close()
            raise
        self._num_made += 1
        return ours, descriptors[0]

    async def _ask(self, order: bytes, descriptors: list[int]) -> None:
        since, made = time.monotonic(), self._num_made
        while True:
            try:
                socket.send_fds(self._control, [order], descriptors)
            except BlockingIOError:  # many boxes are asked for at once
                if self._num_made != made:
                    since, made = time.monotonic(), self._num_made
                elif time.monotonic() - since > HUNG_S:
                    raise ZygoteGone(f"what makes boxes has made none for {HUNG_S:g} s") from None
                await asyncio.sleep(_LOOK_S)
            except OSError as error:  # it was killed, as by the system when memory ran out
                raise ZygoteGone(f"what makes boxes has ended ({error.strerror})") from error
            else:
                return

    async def _moving(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait, for as long as boxes are made meanwhile."""
        while True:
            before = self._num_made
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HUNG_S):
                    await wait()
                return
            if self._ended or self._num_made == before:
                raise ZygoteGone(f"what makes boxes has made none for {HUNG_S:g} s")

    async def _refuse_if_ended(self) -> None:
        """It closes its files one after the other, the socket to it perhaps after the channel of a box."""
        poller = select.poll()
        for _ in range(_NUM_LOOKS):
            if not self._ended:
                poller.register(self._control, select.POLLRDHUP)
            if self._ended or poller.poll(0):
                raise ZygoteGone("what makes boxes has ended")
            await asyncio.sleep(_LOOK_S)

    def end(self) -> None:
        """Let nobody ask it any more, and kill it; nothing is waited for."""
        if self._ended:
            return
        self._ended = True
        self._control.close()
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Returns when it has ended; also where it stands still and hears nothing."""
        self.end()
        with self._closing:
            if not self._closed:
                self._closed = True
                self._wait()

    def _wait(self) -> None:
        if self.pidfd >= 0:
            has_ended(self.pidfd, _READY_S)
            os.close(self.pidfd)
        try:
            self._process.wait(_READY_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._words.close()


async def _readable(channel: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(channel, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(channel)


def has_ended(pidfd: int, within_s: float = 0.0) -> bool:
    """Whether the process of a handle has gone."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(within_s * 1000))


async def ended(pidfd: int) -> None:
    """Wait until it has gone, without a thread."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(pidfd, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(pidfd)


def pid_of(pidfd: int) -> int:
    """The number by which this process knows the process of a handle."""
    with open(f"/proc/self/fdinfo/{pidfd}") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))
