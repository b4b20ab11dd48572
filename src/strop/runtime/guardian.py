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
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_REAP_LIMIT_S = 5.0


def guard(lifeline: socket.socket, parent_pid: int) -> None:
    """Fork. Returns in the child only; the calling process becomes the guardian and ends with the child.

    Concurrency:
        Call it before any thread exists. The lifeline is watched, never read, once this was called.
    """
    guardian_pid = os.getpid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # descendants that daemonise come back to the guardian
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian_pid:
            os._exit(1)
        return
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # also here: whichever process comes first
    os._exit(_watch(pid, lifeline, parent_pid))


def _watch(worker_pid: int, lifeline: socket.socket, parent_pid: int) -> int:
    """Wait for the worker's end, the pool's, or a SIGTERM; clear up. Returns the status as a shell has it."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, _noted)
    signal.signal(signal.SIGTERM, _noted)
    signal.set_wakeup_fd(waker)
    # The second way to notice the pool's death: a fork of the pool may hold the lifeline open.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    ended = os.getppid() != parent_pid
    status: int | None = None
    while not ended:
        status = _reap(worker_pid, status)
        if status is not None:
            break
        ready, _, _ = select.select([lifeline, woken], [], [])
        ended = lifeline in ready or (woken in ready and signal.SIGTERM in os.read(woken, 64))
    return _clear(worker_pid, status)


def _clear(worker_pid: int, status: int | None) -> int:
    with contextlib.suppress(OSError):
        os.killpg(worker_pid, signal.SIGKILL)
    give_up = time.monotonic() + _REAP_LIMIT_S
    while time.monotonic() < give_up:
        for pid in _children():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == worker_pid:
            status = code
        if pid == 0:
            time.sleep(0.002)
    return _exit_code(status)


def clear_after(guardian_pid: int, mark: str) -> None:
    """End what a guardian left that was killed before it could clear up: its session, and whoever has `mark`
    (`NAME=value`) in its environment.

    The session's number is not given to another process while it has a member. Does nothing without /proc.
    """
    while left := _left_of(guardian_pid, mark.encode()):
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


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
