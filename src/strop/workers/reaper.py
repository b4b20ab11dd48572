"""A worker's process tree -> nothing left of it, whoever dies first.

The worker process forks before it has loaded anything: the parent stays behind as a guardian that runs no
user code and so is never blocked; the child becomes the worker, leader of its own process group. When the
pool's end of the lifeline closes (the pool wants it so, or was killed), or the worker ends by itself, the
guardian kills the worker's group and every descendant that had left it, and exits with the worker's status.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_REAP_LIMIT_S = 5.0

Report = Callable[..., None]


class Limited(Protocol):
    """Limits of a worker, kept by its guardian. See `workers.watch`."""

    def begin(self, report: Report) -> None: ...

    def enter(self) -> None: ...

    def complaint(self, worker_pid: int) -> str | None: ...

    def kill(self) -> None: ...

    def ended(self) -> str | None: ...

    def close(self) -> None: ...


def guard(
    lifeline: socket.socket,
    parent_pid: int,
    *,
    report: Report,
    limited: Limited | None = None,
    interval_s: float = 0.2,
) -> None:
    """Fork. Returns in the child only; the calling process becomes the guardian and ends with the child.

    With `limited` the guardian looks every `interval_s` whether the worker stays within its limits, and
    reports `over` with the reason before it ends one that does not.

    Concurrency:
        Call it before any thread exists. The lifeline is watched, never read, once this was called.
    """
    guardian_pid = os.getpid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # descendants that daemonise come back to the guardian
    if limited is not None:
        limited.begin(report)
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian_pid:
            os._exit(1)
        if limited is not None:
            limited.enter()
        return
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # also here: whichever process comes first
    status = _watch(pid, lifeline, parent_pid, _Looking(limited, report, pid), interval_s)
    if limited is not None:
        limited.kill()
    code = _clear(pid, status)
    if limited is not None:
        if status is not None and (reason := limited.ended()):
            _send(report, reason)
        limited.close()
    os._exit(code)


class _Looking:
    """Whether the worker has to end for what it uses; nothing is looked at where nothing is limited."""

    def __init__(self, limited: Limited | None, report: Report, pid: int) -> None:
        self.limited = limited
        self._report = report
        self._pid = pid

    def is_over(self) -> bool:
        if self.limited is None:
            return False
        try:
            reason = self.limited.complaint(self._pid)
        except OSError:  # the machine itself may be short of files or memory; the worker is what it is about
            return False
        if reason is not None:
            _send(self._report, reason)
        return reason is not None


def _send(report: Report, reason: str) -> None:
    with contextlib.suppress(OSError):  # the pool may have gone
        report(event="over", text=reason)


def _watch(
    worker_pid: int, lifeline: socket.socket, parent_pid: int, looking: _Looking, interval_s: float
) -> int | None:
    """Wait for the worker's end, the pool's, or a SIGTERM. Returns the worker's status if it has ended."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, _noted)
    signal.signal(signal.SIGTERM, _noted)
    signal.set_wakeup_fd(waker)
    # The second way to notice the pool's death: a fork of the pool may hold the lifeline open.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    ended = os.getppid() != parent_pid
    status: int | None = None
    next_look = time.monotonic() + interval_s
    while not ended:
        status = _reap(worker_pid, status)
        if status is not None:
            break
        wait_s = None if looking.limited is None else max(0.0, next_look - time.monotonic())
        ready, _, _ = select.select([lifeline, woken], [], [], wait_s)
        ended = lifeline in ready or (woken in ready and signal.SIGTERM in os.read(woken, 64))
        if not ended and time.monotonic() >= next_look:
            ended = looking.is_over()
            next_look = time.monotonic() + interval_s
    return status


def _clear(worker_pid: int, status: int | None) -> int:
    with contextlib.suppress(OSError):
        os.killpg(worker_pid, signal.SIGKILL)
    give_up = time.monotonic() + _REAP_LIMIT_S
    while time.monotonic() < give_up:
        for pid in _children():
            _kill_with_group(pid)
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == worker_pid:
            status = code
        if pid == 0:
            time.sleep(0.002)
    return _exit_code(status)


def _kill_with_group(pid: int) -> None:
    """The whole group in one stroke, which no fork in it can outrun; unless it is our own."""
    with contextlib.suppress(OSError):
        group = os.getpgid(pid)
        if group not in (os.getpgrp(), 0, 1):
            os.killpg(group, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def clear_after(guardian_pid: int, mark: str) -> None:
    """End what a guardian left that was killed before it could clear up: its session, and whoever has `mark`
    (`NAME=value`) in its environment.

    The session's number is not given to another process while it has a member. Does nothing without /proc.
    """
    while left := _left_of(guardian_pid, mark.encode()):
        for pid in left:
            _kill_with_group(pid)


def _left_of(session_id: int, mark: bytes) -> list[int]:
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The name in parentheses may hold anything; state, parent, group and session follow it.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if fields[0] in ("Z", "X") or int(folder.name) == os.getpid():
                continue
            if int(fields[3]) == session_id or mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def _reap(worker_pid: int, status: int | None) -> int | None:
    """Collect whatever has ended; daemonised descendants arrive here too."""
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == worker_pid:
            status = code


def _children() -> list[int]:
    """This process's children, from /proc; none where there is no /proc."""
    pid = os.getpid()
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _exit_code(status: int | None) -> int:
    if status is None:
        return 128 + signal.SIGKILL
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _noted(signum: int, frame: object) -> None:
    """The wake-up file descriptor carries the news."""


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
