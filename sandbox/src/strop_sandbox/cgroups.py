"""A box's process -> a control group of its own, version 2 or 1, wherever this process may make one.

With it the kernel counts memory (files in memory and its own structures, too) and processes; without it the
init process of a box does, a little less exactly.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path

from strop_sandbox.errors import SandboxError

INIT_BYTES = 24 * 2**20
"""What is added to a program's memory for the init process beside it."""

_FOLDER = "strop-sandbox-"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """Names of the files of one version."""

    memory: str
    swap: str | None
    sockets: str | None
    used: str
    peak: str
    processes: str
    events: str


_V2 = _Files(
    memory="memory.max",
    swap="memory.swap.max",
    sockets=None,  # counted with the rest
    used="memory.current",
    peak="memory.peak",
    processes="pids.max",
    events="memory.events",
)
_V1 = _Files(
    memory="memory.limit_in_bytes",
    swap=None,
    sockets="memory.kmem.tcp.limit_in_bytes",
    used="memory.usage_in_bytes",
    peak="memory.max_usage_in_bytes",
    processes="pids.max",
    events="memory.oom_control",
)


class Cgroup:
    """The group of one box: one folder (version 2), or one a controller (version 1)."""

    def __init__(self, files: _Files, memory: Path, processes: Path) -> None:
        self._files, self._memory, self._processes = files, memory, processes
        self._peak: int | None = None
        self._used_before = self._known = 0
        for folder in self._folders:
            folder.mkdir()

    @property
    def _folders(self) -> set[Path]:
        return {self._memory, self._processes}

    def add(self, pid: int) -> None:
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def limit(self, *, memory_bytes: int, processes: int) -> None:
        """May be called again, with other limits."""
        (self._memory / self._files.memory).write_text(str(memory_bytes + INIT_BYTES))
        if self._files.swap is not None:
            with contextlib.suppress(OSError):  # a machine without swap accounting
                (self._memory / self._files.swap).write_text("0")
        if self._files.sockets is not None:
            with contextlib.suppress(OSError):  # a kernel without it
                (self._memory / self._files.sockets).write_text(str(memory_bytes))
        (self._processes / self._files.processes).write_text(str(processes + 2))

    def num_oom_kills(self) -> int:
        lines = (self._memory / self._files.events).read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

    def count_anew(self) -> None:
        """What the group holds now, as of a compiler or an earlier program, is not the next program's."""
        self._forget_peak()
        with contextlib.suppress(OSError, ValueError):
            self._used_before = int((self._memory / self._files.used).read_text())
            peak = self._memory / self._files.peak
            try:
                self._peak = os.open(peak, os.O_RDWR)
                os.write(self._peak, b"0")
            except OSError:  # before Linux 6.12 that of version 2 is for reading only
                self._forget_peak()
                self._peak = os.open(peak, os.O_RDONLY)
            self._known = self._peak_bytes()

    def grown_bytes(self) -> int:
        """By how much, at most, it held more since `count_anew`; 0 where an earlier peak hides that."""
        with contextlib.suppress(OSError, ValueError):
            peak = self._peak_bytes()
            if peak > self._known:
                return peak - self._used_before
        return 0

    def _peak_bytes(self) -> int:
        return int(os.pread(self._peak, 32, 0)) if self._peak is not None else 0

    def _forget_peak(self) -> None:
        if self._peak is not None:
            os.close(self._peak)
            self._peak = None

    def remove(self) -> bool:
        """Whether it has gone; a group whose last process is just ending cannot yet."""
        self._forget_peak()
        for folder in self._folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                return False
        return True


class Cgroups:
    """Where groups can be made. `version` is 2 or 1."""

    def __init__(self, version: int, memory: Path, processes: Path) -> None:
        self.version = version
        self._files = _V2 if version == 2 else _V1
        self._roots = (memory / f"{_FOLDER}{os.getpid()}", processes / f"{_FOLDER}{os.getpid()}")
        _clear_left_over(memory)
        _clear_left_over(processes)
        for root in set(self._roots):
            root.mkdir(exist_ok=True)
        self._count = 0
        if version == 2:
            (self._roots[0] / "cgroup.subtree_control").write_text("+memory +pids")

    @property
    def root(self) -> Path:
        """Where the groups of boxes are (of memory, in version 1)."""
        return self._roots[0]

    def make(self) -> Cgroup:
        self._count += 1
        memory, processes = (root / f"box-{self._count}" for root in self._roots)
        return Cgroup(self._files, memory, processes)

    def close(self) -> None:
        for root in set(self._roots):
            _remove_tree(root)


def open_cgroups(proc: Path = Path("/proc"), mounts: Path = Path("/sys/fs/cgroup")) -> Cgroups:
    """Groups below the one that this process is in.

    Raises:
        SandboxError: none can be made; the text says why.
    """
    own = dict(_own_groups((proc / "self/cgroup").read_text()))
    tries: list[tuple[int, Path, Path]] = []
    if (mounts / "cgroup.controllers").exists() and "" in own:
        tries.append((2, mounts / own[""].lstrip("/"), mounts / own[""].lstrip("/")))
    if "memory" in own and "pids" in own:
        tries.append(
            (
                1,
                mounts / "memory" / own["memory"].lstrip("/"),
                mounts / "pids" / own["pids"].lstrip("/"),
            )
        )
    reasons: list[str] = []
    for version, memory, processes in tries:
        try:
            if version == 2:
                _make_room(memory)
            groups = Cgroups(version, memory, processes)
            _prove(groups)
        except OSError as error:
            reasons.append(f"version {version}: {error.strerror} ({error.filename})")
            continue
        return groups
    raise SandboxError("no control group can be made: " + ("; ".join(reasons) or "none is mounted"))


def _own_groups(text: str) -> list[tuple[str, str]]:
    """`/proc/self/cgroup` as (controller, path); the one of version 2 has no controller."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found.extend((name, path) for name in controllers.split(","))
    return found


def _make_room(folder: Path, controllers: tuple[str, ...] = ("memory", "pids")) -> None:
    """Version 2 gives limits to groups below a group only where that has no processes itself: ours moves.

    Another's process is not moved: its owner may have limits and accounts by that group.
    """
    if set(controllers) <= set((folder / "cgroup.subtree_control").read_text().split()):
        return
    if missing := sorted(set(controllers) - set((folder / "cgroup.controllers").read_text().split())):
        raise OSError(errno.EPERM, f"its {' and '.join(missing)} controller was not delegated", str(folder))
    own = str(os.getpid())
    others = [pid for pid in (folder / "cgroup.procs").read_text().split() if pid != own]
    if others:
        raise OSError(
            errno.EBUSY,
            f"{len(others)} other processes are in the same group; start the sandbox in one of its own,"
            " as by systemd-run --scope -p Delegate=yes",
            str(folder),
        )
    inner = folder / "strop-server"
    inner.mkdir(exist_ok=True)
    (inner / "cgroup.procs").write_text(own)
    try:
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
    except OSError:  # another came meanwhile: as it was
        (folder / "cgroup.procs").write_text(own)
        inner.rmdir()
        raise


def _prove(groups: Cgroups) -> None:
    """Make, limit and remove one: a mount may be there and still refuse."""
    group = groups.make()
    try:
        group.limit(memory_bytes=64 * 2**20, processes=16)
        group.num_oom_kills()
    finally:
        group.remove()


def _clear_left_over(folder: Path) -> None:
    """Groups of servers that were killed."""
    for old in folder.glob(f"{_FOLDER}*"):
        pid = old.name.removeprefix(_FOLDER)
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            _remove_tree(old)


def _remove_tree(root: Path) -> None:
    with contextlib.suppress(OSError):
        for box in root.glob("box-*"):
            with contextlib.suppress(OSError):
                box.rmdir()
        root.rmdir()
