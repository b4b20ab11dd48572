"""A child's process tree -> nothing left of it, whoever dies first.

The process that was started forks before it has loaded anything. It stays behind as the reaper, which runs no
user code and so is never blocked; what it forked goes on as the child, the leader of its own process group.
When the parent's end of the lifeline closes (the parent wants it so, or was killed), or the child ends by
itself, the reaper kills the child's group and every descendant that had left it, and exits with the child's
status.
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
    """Limits of a child, kept by its reaper. See `processes.watch`."""

    def begin(self, report: Report) -> None: ...

    def enter(self) -> None: ...

    def complaint(self, child_pid: int) -> str | None: ...

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
    """Fork. Returns in the child only; the calling process becomes the reaper and ends with the child.

    With `limited` the reaper checks every `interval_s` that the child stays within its limits, and reports
    `over` with the reason before it ends one that does not.

    Concurrency:
        Call it before any thread exists. The lifeline is watched, never read, once this was called.
    """
    reaper_pid = os.getpid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # descendants that daemonise come back to the reaper
    if limited is not None:
        limited.begin(report)
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != reaper_pid:
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
    """Whether the child has to end for what it uses; without limits it never has to."""

    def __init__(self, limited: Limited | None, report: Report, pid: int) -> None:
        self.limited = limited
        self._report = report
        self._pid = pid

    def is_over(self) -> bool:
        if self.limited is None:
            return False
        try:
            reason = self.limited.complaint(self._pid)
        except OSError:  # the machine itself may be short of files or memory
            return False
        if reason is not None:
            _send(self._report, reason)
        return reason is not None


def _send(report: Report, reason: str) -> None:
    with contextlib.suppress(OSError):  # the parent may be gone
        report(event="over", text=reason)


def _watch(
    child_pid: int, lifeline: socket.socket, parent_pid: int, looking: _Looking, interval_s: float
) -> int | None:
    """Wait for the child's end, the parent's, or a SIGTERM. Returns the child's status if it has ended."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, _noted)
    signal.signal(signal.SIGTERM, _noted)
    signal.set_wakeup_fd(waker)
    # The second way to notice the parent's death: a fork of the parent may hold the lifeline open.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    ended = os.getppid() != parent_pid
    status: int | None = None
    next_look = time.monotonic() + interval_s
    while not ended:
        status = _reap(child_pid, status)
        if status is not None:
            break
        wait_s = None if looking.limited is None else max(0.0, next_look - time.monotonic())
        ready, _, _ = select.select([lifeline, woken], [], [], wait_s)
        ended = lifeline in ready or (woken in ready and signal.SIGTERM in os.read(woken, 64))
        if not ended and time.monotonic() >= next_look:
            ended = looking.is_over()
            next_look = time.monotonic() + interval_s
    return status


def _clear(child_pid: int, status: int | None) -> int:
    with contextlib.suppress(OSError):
        os.killpg(child_pid, signal.SIGKILL)
    give_up = time.monotonic() + _REAP_LIMIT_S
    while time.monotonic() < give_up:
        for pid in _children():
            _kill_with_group(pid)
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == child_pid:
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


def clear_after(reaper_pid: int, name: str, value: str) -> None:
    """End what a reaper that was killed could not: its session, and whoever has `name` set to `value` in its
    environment.

    The session's number is not given to another process while it has a member.
    """
    while left := _left_of(reaper_pid, name, value):
        for pid in left:
            _kill_with_group(pid)


def _left_of(session_id: int, name: str, value: str) -> list[int]:
    import psutil  # the reaper's own process has no use for it

    found: list[int] = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            process = psutil.Process(pid)
            if pid == os.getpid() or process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                continue
            if os.getsid(pid) == session_id or process.environ().get(name) == value:
                found.append(pid)
    return found


def _reap(child_pid: int, status: int | None) -> int | None:
    """Collect whatever has ended; daemonised descendants arrive here too."""
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child_pid:
            status = code


def _children() -> list[int]:
    """This process's children, from /proc; an empty list where there is no /proc."""
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
    """The wake-up file descriptor carries the signal's number."""


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
