"""A process with all that it started -> gone; an exit status -> words."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from strop.locales import Message, msg


def exit_text(code: int) -> Message:
    """How a process ended, as the end of a sentence. `code` is Popen's: negative for a signal.

    >>> exit_text(3), exit_text(-9)
    ('exited with status 3', 'was killed by SIGKILL')
    """
    if code >= 0:
        return msg("exited with status {code}", code=code)
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return msg("was killed by {name}", name=name)


def kill_group(leader_pid: int) -> None:
    """Kill a session's or group's leader with its whole group; harmless when it has gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, signal.SIGKILL)


def end_tree(process: subprocess.Popen[bytes], *, grace_s: float) -> bool:
    """Wait for the end of a child that was told to end; past the grace, kill it with all its descendants.

    Returns:
        Whether it ended by itself.
    """
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        import psutil  # a child pays for this module, too

        try:
            descendants = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            descendants = []
        process.kill()
        for one in descendants:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()
        return False
    return True
