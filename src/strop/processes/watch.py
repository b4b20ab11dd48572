"""A child's process tree -> what it uses, and the sentence that ends it when that is too much.

Runs in the reaper, a few times a second: what resource limits cannot hold (a tree's memory, the number of its
processes, a folder's size) is counted here. It reads the tree's own entries in /proc, not psutil's: that goes
through all processes of the machine to find one's descendants, which is too slow beside a fork bomb.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from strop.processes.cgroups import Cgroup
from strop.processes.limits import MAX_FILES, MAX_PROCESSES, MAX_TASKS, MIB, Limits
from strop.processes.reaper import Report

_FULL_SHARE = 0.9
"""Of its memory: from here on a worker gets no more calls and is replaced."""
_REPORTED_BYTES = 4 * MIB
_NUM_ROUNDS_OPEN = 3
"""Rounds in a row that a child may have all its files open; one that closes them again is left alone."""
_MAX_ENTRIES = 20_000
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Use:
    """What a tree of processes uses now."""

    memory: int = 0
    num_processes: int = 0
    num_tasks: int = 0


@dataclass(slots=True)
class Watch:
    """The limits of one child and how it keeps them. `scratch` is a folder of its own that ends with it."""

    limits: Limits
    scratch: Path
    name: str
    _report: Report | None = None
    _cgroup: Cgroup | None = None
    _reported_bytes: int = 0
    _reported_full: bool = False
    _num_open: int = 0
    _rounds: int = field(default=0)

    def begin(self, report: Report) -> None:
        """Before the child exists."""
        self._report = report
        self._cgroup = self.limits.cgroup(self.name)

    def enter(self) -> None:
        """In the child, before it has loaded anything."""
        if self._cgroup is not None:
            self._cgroup.enter(os.getpid())
        self.limits.apply(self.scratch)

    def complaint(self, child_pid: int) -> str | None:
        """Check once. Returns why the child has to end, None while it may go on."""
        use = use_of_tree(os.getpid())
        if use.num_processes > MAX_PROCESSES:  # before anything that takes longer the more there are
            return f"it had {use.num_processes} processes; the limit is {MAX_PROCESSES}"
        self._report_memory(use.memory)
        if use.memory > self.limits.memory_bytes and (memory := proportional(os.getpid())):
            use.memory = memory
        if use.memory > self.limits.memory_bytes:
            asked = self.limits.memory_size
            most = f"its memory_size is {asked}" if asked else "half of the machine's memory is the limit"
            return f"it used {use.memory // MIB} MiB of memory; {most}"
        if use.num_tasks > MAX_TASKS - 32:
            return f"it had {use.num_tasks} threads; the limit is {MAX_TASKS}"
        return self._files(child_pid) or self._disk()

    def kill(self) -> None:
        """End all that is in its control group."""
        if self._cgroup is not None:
            self._cgroup.kill()

    def ended(self) -> str | None:
        """What the kernel did to a child that is gone."""
        if self._cgroup is not None and self._cgroup.num_killed():
            asked = self.limits.memory_size
            most = f"memory_size of {asked} MiB" if asked else "share of the machine's memory"
            return f"it ran out of its {most}"
        return None

    def close(self) -> None:
        """After the last of its processes."""
        if self._cgroup is not None:
            self._cgroup.remove()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _report_memory(self, memory: int) -> None:
        if abs(memory - self._reported_bytes) >= _REPORTED_BYTES:
            self._reported_bytes = memory
            self._say(event="memory", bytes=memory)
        if not self._reported_full and memory > _FULL_SHARE * self.limits.memory_bytes:
            self._reported_full = True
            self._say(event="full")

    def _say(self, **event: object) -> None:
        if self._report is not None:
            self._report(**event)

    def _files(self, child_pid: int) -> str | None:
        try:
            num_open = len(os.listdir(f"/proc/{child_pid}/fd"))
        except OSError:
            return None
        self._num_open = self._num_open + 1 if num_open > MAX_FILES - 64 else 0
        if self._num_open < _NUM_ROUNDS_OPEN:
            return None
        return f"it had {num_open} files open; the limit is {MAX_FILES}"

    def _disk(self) -> str | None:
        self._rounds += 1
        limit = self.limits.disk_size
        if limit is None or self._rounds % 3:
            return None
        used = _folder_bytes(self.scratch)
        if used <= limit * MIB:
            return None
        return f"it wrote {used // MIB} MiB to its TMPDIR; its disk_size is {limit}"


def use_of_tree(root: int) -> Use:
    """Of all descendants of `root`, without itself."""
    use = Use()
    found = descendants(root)
    if len(found) > MAX_PROCESSES:
        return Use(num_processes=len(found))
    for pid in found:
        with contextlib.suppress(OSError, ValueError, IndexError):
            use.num_tasks += len(os.listdir(f"/proc/{pid}/task"))
            use.num_processes += 1
            resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
            use.memory += (int(resident) - int(shared)) * _PAGE
    return use


def descendants(root: int) -> list[int]:
    """Processes below `root`; an empty list where there is no /proc."""
    found: list[int] = []
    left = [root]
    while left and len(found) <= MAX_PROCESSES:
        pid = left.pop()
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError, ValueError):
                    text = Path(f"/proc/{pid}/task/{task}/children").read_text()
                    children = [int(word) for word in text.split()]
                    found += children
                    left += children
    return found


def proportional(root: int) -> int:
    """Memory of the tree with shared pages counted once; slower, so asked only when it matters."""
    total = 0
    for pid in descendants(root):
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss_Anon:"):
                    total += int(line.split()[1]) * 1024
    return total


def _folder_bytes(folder: Path) -> int:
    total = num_seen = 0
    for place, _, names in os.walk(folder):
        for name in names:
            num_seen += 1
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
        if num_seen > _MAX_ENTRIES:
            break
    return total
