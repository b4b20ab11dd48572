"""A command that starts `sandbox.zygote` -> boxes on demand: their channel, and a handle of their process.

The server's side. The zygote ends with the socket to it, and with it every box: also when this process is
killed without warning.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from strop.errors import StropError

_READY_S = 20.0


class Zygote:
    """One zygote, started anew should it have ended. `close` it.

    Concurrency:
        One event loop; starting blocks it for as long as a Python takes.
    """

    def __init__(self, command: Sequence[str], plan: Mapping[str, Any]) -> None:
        self._command, self._plan = list(command), json.dumps(plan).encode()
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed with it
        try:
            with theirs:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=self._words,
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            self._words.close()
            raise
        self._control = ours
        try:
            ours.settimeout(_READY_S)
            ours.send(self._plan)
            said = ours.recv(16)
        except OSError as error:
            self.close()
            raise StropError(f"it does not answer: {error}") from error
        if said != b"ready":
            words = self._last_words()
            self.close()
            raise StropError(f"it did not start: {words}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_READY_S)
        self._words.seek(0)
        lines = self._words.read(1 << 16).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"status {self._process.returncode}"

    async def fork(self, uid: int, words: int) -> tuple[socket.socket, int]:
        """A new box of user `uid`: the channel to its agent, and a pidfd of its process 1.

        `words` is a file that says why there is none, should it come to that.

        Raises:
            StropError: the box was not made.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._ask(json.dumps({"uid": uid}).encode(), [theirs.fileno(), words])
            ours.setblocking(False)
            await _readable(ours)
            _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
            if not descriptors:
                raise StropError("a box was not made")
        except BaseException:
            ours.close()
            raise
        return ours, descriptors[0]

    def _ask(self, order: bytes, descriptors: list[int]) -> None:
        try:
            socket.send_fds(self._control, [order], descriptors)
        except OSError:  # it was killed, as by the system when memory ran out
            self.close()
            self._start()
            socket.send_fds(self._control, [order], descriptors)

    def close(self) -> None:
        """Returns when it has ended, and every box with it."""
        self._control.close()
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


def has_ended(pidfd: int) -> bool:
    """Whether the process of a handle has gone."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


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
