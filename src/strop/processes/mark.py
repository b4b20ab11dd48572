"""Host, process id and start time -> whether that very process is still there.

An id alone is not enough: the system uses ids again. `store.jobs` finds jobs whose trainer is gone by it.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMark:
    """A process, distinguishable from every other one, later ones with its id included.

    `started` is opaque: compared, never computed with.
    """

    host: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"{self.host} {self.pid} {self.started}"

    @classmethod
    def read(cls, text: str) -> ProcessMark:
        """The mark that was written as text."""
        host, pid, started = text.split(" ", 2)
        return cls(host=host, pid=int(pid), started=started)


def this_process() -> ProcessMark:
    """The mark of the caller's own process."""
    return _mine(os.getpid())


@cache
def _mine(pid: int) -> ProcessMark:
    return ProcessMark(host=socket.gethostname(), pid=pid, started=_started(pid) or "unknown")


def process_with(pid: int) -> ProcessMark | None:
    """The mark of a living process of this machine; None if it does not exist."""
    started = _started(pid)
    return None if started is None else ProcessMark(host=socket.gethostname(), pid=pid, started=started)


def is_gone(mark: ProcessMark) -> bool:
    """Whether the process has certainly ended; of another machine's process that is never certain."""
    if mark.host != socket.gethostname():
        return False
    found = _started(mark.pid)
    return found is None or (mark.started != "unknown" and found != mark.started)


def _started(pid: int) -> str | None:
    """Boot and start time of a process; None if it does not exist, or is a zombie."""
    if not _BOOT.exists():  # not Linux
        return _created(pid)
    # Not psutil's start time: that is a float which moves with the machine's clock.
    try:
        # The name in parentheses may hold anything; state is the 3rd field, start time the 22nd.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else f"{_BOOT.read_text().strip()}/{fields[19]}"


def _created(pid: int) -> str | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(process.create_time())
    except psutil.Error:
        return None
