"""Isolation -> a closed place for programs, as the server sees it: orders go in, what came of them comes out.

A box is used for one request and thrown away. Its init process (`strop_sandbox.init`) is trusted to
keep limits, but not with the server's health: its answers are bounded and checked.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from strop_sandbox.cgroups import Cgroup
from strop_sandbox.errors import SandboxError
from strop_sandbox.isolation import WORK, Isolation, Kind
from strop_sandbox.limits import MIB, Limits
from strop_sandbox.seccomp import filter_descriptor
from strop_sandbox.zygotes import Zygote, ended, has_ended, pid_of

START_S = 60.0
_ANSWER_BYTES = 192 * MIB
_GROUP_TRIES = 200
FETCH_BYTES = 64 * MIB


class BoxError(SandboxError):
    """The sandbox itself failed; the program had no part in it."""

    boundary = "sandbox"


class BoxEnded(BoxError):
    """The box went away under a program that had no part in it, as when what makes boxes was killed."""


class FileError(SandboxError):
    """A file of the request cannot be written as it is named."""

    boundary = "sandbox"
    http_status = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a program ended. `reason` names the limit that ended it, or is empty.

    Units:
        wall_s, cpu_s seconds; peak_bytes (the largest process, or all that it added to its box, whichever is
        more), stdout_bytes and stderr_bytes bytes (the last two of all output, not of what was kept).
    """

    reason: str
    return_code: int | None
    wall_s: float
    cpu_s: float
    peak_bytes: int
    stdout: bytes
    stderr: bytes
    stdout_bytes: int
    stderr_bytes: int

    @property
    def ok(self) -> bool:
        return not self.reason and self.return_code == 0

    @property
    def signal(self) -> str | None:
        """The signal that killed it."""
        if self.return_code is None or self.return_code >= 0:
            return None
        with contextlib.suppress(ValueError):
            return signal.Signals(-self.return_code).name
        return str(-self.return_code)


class Box:
    """One box. `start` makes it; its owner closes it."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self._group: Cgroup | None = None
        self._pidfd: int | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        self._work = WORK
        self._used = False

    @classmethod
    async def start(cls, isolation: Isolation) -> Box:
        """Raises:
        BoxError: the box did not come up.
        """
        box = cls(isolation)
        if isolation.kind is Kind.NONE:
            box._work = os.path.realpath(tempfile.mkdtemp(prefix="box-", dir=isolation.folder))  # noqa: ASYNC240
        try:
            await box._start()
        except BaseException:
            await box.close()
            raise
        return box

    async def _start(self) -> None:
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the box
        try:
            async with asyncio.timeout(START_S):
                if self._isolation.zygote is not None:
                    await self._fork(self._isolation.zygote)
                else:
                    await self._start_alone()
        except TimeoutError:
            raise BoxError(f"a box was not ready after {START_S:g} s") from None
        if self._isolation.cgroups is not None:
            assert self._pidfd is not None
            try:
                self._group = self._isolation.cgroups.make()
                self._group.add(pid_of(self._pidfd))
            except OSError as error:
                kind = BoxError if self.is_alive else BoxEnded
                raise kind(f"a box could not be put into a control group: {error}") from error

    async def _fork(self, zygote: Zygote) -> None:
        try:
            channel, self._pidfd = await zygote.fork(self._isolation.next_uid(), self._words.fileno())
        except (SandboxError, OSError) as error:
            raise BoxError(f"{error}: {self._last_words()}") from error
        await self._connect(channel)

    async def _start_alone(self) -> None:
        walls = self._isolation.kind is not Kind.NONE
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                info = self._popen_box(theirs.fileno(), walls)
        except BaseException:
            ours.close()
            raise
        with os.fdopen(info, "rb", buffering=0) as told:
            await self._connect(ours)
            assert self._popen is not None
            pid = json.loads(told.read(4096))["child-pid"] if walls else self._popen.pid
        self._pidfd = os.pidfd_open(pid)

    async def _connect(self, channel: socket.socket) -> None:
        try:
            self._reader, self._writer = await asyncio.open_connection(sock=channel)
        except BaseException:
            channel.close()
            raise
        await self._answer()

    def _popen_box(self, channel: int, walls: bool) -> int:
        """Start it; gives the descriptor from which what bubblewrap says of it can be read."""
        with ExitStack() as closing:
            seccomp = filter_descriptor() if walls else os.open(os.devnull, os.O_RDONLY)
            closing.callback(os.close, seccomp)
            read, write = os.pipe()
            closing.callback(os.close, write)
            try:
                self._popen = subprocess.Popen(
                    self._isolation.command(seccomp, write),
                    stdin=channel,
                    stdout=subprocess.DEVNULL,
                    stderr=self._words,
                    env=self._isolation.environment(),
                    cwd="/" if walls else self._work,
                    pass_fds=(seccomp, write),
                    start_new_session=True,
                )
            except BaseException:
                os.close(read)
                raise
        return read

    @property
    def is_alive(self) -> bool:
        return self._pidfd is not None and not has_ended(self._pidfd) and not self._reader.at_eof()

    async def write(self, files: Mapping[str, bytes]) -> None:
        """Write files; relative names are below the working directory, absolute ones where a box is writable.

        Raises:
            FileError: a name leads out of the working directory, or cannot be written.
        """
        for name in files:
            self._check(name)
        encoded = {name: base64.b64encode(content).decode() for name, content in files.items()}
        answer = await self._order(op="files", files=encoded, cwd=self._work)
        if "error" in answer:
            raise FileError(f"files: {answer['error']}")

    def _check(self, name: str) -> None:
        outside = os.path.normpath(name).split(os.sep)[0] == ".."
        if not name or "\0" in name or outside or name.endswith("/"):
            raise FileError(f"files: {name!r} is not a path below the working directory")
        if os.path.isabs(name) and self._isolation.kind is Kind.NONE:
            raise FileError(f"files: {name!r} is absolute, which only an isolated run may be")

    async def run(
        self,
        argv: Sequence[str],
        limits: Limits,
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        python: str | None = None,
    ) -> RunResult:
        """Run a program until it ends or meets a limit; no process of it is left then.

        `python` names a file that the init process runs in a fork of its own, already started, interpreter.
        """
        group = self._group
        if group is not None:
            group.limit(memory_bytes=limits.memory_bytes, processes=limits.processes)
            group.count_anew()
        before = self._num_oom_kills()
        order: dict[str, Any] = {
            "op": "run",
            "argv": list(argv),
            "python": os.path.join(self._work, python) if python else None,
            "env": dict(env or {}),
            "cwd": self._work,
            "stdin": base64.b64encode(stdin).decode(),
            "limits": limits.told(alone=group is None),
        }
        try:
            answer = await self._order(**order)
        except BoxError:
            if self._num_oom_kills() == before:
                raise
            return _out_of_memory(limits)  # files in memory outlive their program, and took `init` along
        if "error" in answer:
            raise BoxError(f"a program could not be started: {answer['error']}")
        if not answer["reason"] and self._num_oom_kills() > before:
            answer["reason"] = "memory_limit"
        return _ran(answer, group.grown_bytes() if group is not None else 0)

    async def fetch(self, paths: Sequence[str] | None) -> tuple[dict[str, bytes], list[str]]:
        """Read plain files, all below the working directory if None; also the names that were too large.

        Raises:
            FileError: a name that no file can have.
        """
        for name in paths or ():
            if "\0" in name:
                raise FileError(f"fetch_files: {name!r} holds a NUL character")
        inside = self._work if self._isolation.kind is Kind.NONE else ""
        answer = await self._order(
            op="fetch",
            paths=None if paths is None else list(paths),
            cwd=self._work,
            limit=FETCH_BYTES,
            inside=inside,
        )
        files = {str(name): base64.b64decode(content) for name, content in answer.get("files", {}).items()}
        return files, [str(name) for name in answer.get("left_out", [])]

    async def _order(self, **order: Any) -> dict[str, Any]:
        self._used = True
        data = orjson.dumps(order)
        before = self._num_oom_kills()
        try:
            return await self._answer_to(struct.pack(">I", len(data)) + data)
        except BoxEnded as error:
            if self._isolation.kind is Kind.NONE or self._num_oom_kills() > before:
                raise BoxError(error.message) from error  # its program did it, and would again
            raise

    async def _answer_to(self, order: bytes) -> dict[str, Any]:
        try:
            self._writer.write(order)
            await self._writer.drain()
        except OSError as error:
            raise BoxEnded(f"a box has ended: {error}") from error
        return await self._answer()

    def _num_oom_kills(self) -> int:
        return self._group.num_oom_kills() if self._group is not None else 0

    async def _answer(self) -> dict[str, Any]:
        try:
            (length,) = struct.unpack(">I", await self._reader.readexactly(4))
            if length > _ANSWER_BYTES:
                raise BoxError(f"a box answered with {length} bytes")
            answer = orjson.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError) as error:
            raise BoxEnded(f"a box has ended: {self._last_words() or error}") from error
        except orjson.JSONDecodeError as error:
            raise BoxError("a box answered with something that is not JSON") from error
        if not isinstance(answer, dict):
            raise BoxError("a box answered with something that is not an object")
        return answer  # pyright: ignore[reportUnknownVariableType]

    def _last_words(self) -> str:
        self._words.seek(0)
        lines = self._words.read(MIB).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    async def close(self) -> None:
        """End whatever is in the box; returns when it and its control group have gone."""
        await asyncio.shield(asyncio.ensure_future(self._close()))

    async def _close(self) -> None:
        if hasattr(self, "_writer"):
            self._writer.close()
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            await ended(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        elif self._popen is not None:
            self._popen.kill()
        if self._popen is not None:
            await _reaped(self._popen)
        if self._group is not None:
            for _ in range(_GROUP_TRIES):
                if self._group.remove():
                    break
                await asyncio.sleep(0.01)  # its last process has not quite gone
        if hasattr(self, "_words"):
            self._words.close()
        if self._isolation.kind is Kind.NONE:
            await asyncio.to_thread(shutil.rmtree, Path(self._work), True)


async def _reaped(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process of this one's own, without a thread."""
    if process.poll() is not None:
        return
    pidfd = os.pidfd_open(process.pid)
    try:
        await ended(pidfd)
    finally:
        os.close(pidfd)
    process.wait()


def _out_of_memory(limits: Limits) -> RunResult:
    return RunResult(
        reason="memory_limit",
        return_code=None,
        wall_s=0.0,
        cpu_s=0.0,
        peak_bytes=limits.memory_bytes,
        stdout=b"",
        stderr=b"",
        stdout_bytes=0,
        stderr_bytes=0,
    )


def _ran(answer: Mapping[str, Any], grown_bytes: int) -> RunResult:
    try:
        reason = str(answer["reason"])
        return RunResult(
            reason=reason,
            return_code=None if reason or answer["return_code"] is None else int(answer["return_code"]),
            wall_s=float(answer["wall_s"]),
            cpu_s=float(answer["cpu_s"]),
            peak_bytes=max(grown_bytes, int(answer["peak_bytes"])),
            stdout=base64.b64decode(answer["stdout"]),
            stderr=base64.b64decode(answer["stderr"]),
            stdout_bytes=int(answer["stdout_bytes"]),
            stderr_bytes=int(answer["stderr_bytes"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BoxError(f"a box answered in another form than its init process does: {error!r}") from error
