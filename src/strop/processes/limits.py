"""What one child may use -> the same, imposed on the process that calls `apply`; its children inherit it.

Limits protect the run from accidents. They do not stop what code under the same user does on purpose.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from strop.processes.cgroups import Cgroup

MIB = 2**20
MAX_FILES = 4096
MAX_PROCESSES = 128
MAX_TASKS = 512
"""Threads and processes of a child together."""
_STACK_MIB = 8
_NUM_STACKS = 96
"""Stacks of threads count as data although they are hardly ever touched."""
_OOM_SCORE = 500
"""Out of memory, the kernel ends the child before the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one worker with its children. None: what the machine has.

    Units:
        cpu: cores. memory_size, disk_size: MiB.
    """

    cpu: float | None = None
    memory_size: int | None = None
    disk_size: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def memory_bytes(self) -> int:
        """`memory_size`, else half of the machine's memory: one function must not end the run."""
        return self.memory_size * MIB if self.memory_size is not None else _machine_memory() // 2

    def cgroup(self, name: str) -> Cgroup | None:
        """A control group that holds a child to these limits; None where this process may not make one."""
        return Cgroup.make(name, cpu=self.cpu, memory_bytes=self.memory_bytes + 16 * MIB, num_tasks=MAX_TASKS)

    def apply(self, scratch: Path) -> None:
        """Impose the limits on this process.

        Side effects:
            Resource limits, cores and the kernel's order of killing.
        """
        data = self.memory_bytes + _STACK_MIB * _NUM_STACKS * MIB
        if self.memory_size is not None:
            _limit(resource.RLIMIT_DATA, data)
        _limit(resource.RLIMIT_NOFILE, MAX_FILES)
        _limit(resource.RLIMIT_FSIZE, self._file_bytes(scratch))
        _limit(resource.RLIMIT_CORE, 0)
        if self.cpu is not None:
            _take_cores(math.ceil(self.cpu))
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))

    def _file_bytes(self, scratch: Path) -> int:
        """`disk_size`, else half of what is free now."""
        if self.disk_size is not None:
            return self.disk_size * MIB
        return max(shutil.disk_usage(scratch).free // 2, 16 * MIB)


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (most, most))


def _take_cores(count: int) -> None:
    """Stay on `count` of the cores that this process has, different ones for each child."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    if count < len(cores):
        first = os.getpid() % len(cores)
        os.sched_setaffinity(0, {cores[(first + index) % len(cores)] for index in range(count)})


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
