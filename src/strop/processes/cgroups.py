"""Limits -> a control group of the kernel for one child, where this process may make one.

Version 2 where its controllers are delegated, else version 1, each controller by itself. A group that cannot
be made is no error: resource limits and the reaper's watch then hold alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_CONTROLLERS = ("cpu", "memory", "pids")
_REMOVE_LIMIT_S = 1.0


class Cgroup:
    """Folders of one group: one in version 2, one a controller in version 1."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self._folders = folders

    @classmethod
    def make(
        cls,
        name: str,
        *,
        cpu: float | None,
        memory_bytes: int,
        num_tasks: int,
        root: Path = _ROOT,
        own: Path = Path("/proc/self/cgroup"),
    ) -> Cgroup | None:
        """A new group beside or below this process's own; None where none is allowed."""
        places = _places(own)
        group = cls(_version_2(name, places.get(""), root) or _version_1(name, places, root))
        group._limit(cpu, memory_bytes, num_tasks)
        return group if group._folders else None

    @property
    def holds(self) -> list[str]:
        """Which of cpu, memory and pids are limited by it."""
        return sorted(self._folders)

    def enter(self, pid: int) -> None:
        """Move a process into it; its children begin there."""
        for controller, folder in list(self._folders.items()):
            if not _write(folder / "cgroup.procs", str(pid)):
                del self._folders[controller]

    def num_killed(self) -> int:
        """Processes that the kernel ended because the group was out of memory."""
        folder = self._folders.get("memory")
        if folder is None:
            return 0
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError, ValueError):
                for line in (folder / name).read_text().splitlines():
                    key, _, value = line.partition(" ")
                    if key == "oom_kill":
                        return int(value)
        return 0

    @classmethod
    def of_name(
        cls, name: str, *, root: Path = _ROOT, own: Path = Path("/proc/self/cgroup")
    ) -> Cgroup | None:
        """The group that another process made under that name; None if it is gone."""
        places = _places(own)
        wanted = f"strop-{name}"
        unified = root / places.get("", "").lstrip("/")
        found = {one: root / one / places[one].lstrip("/") / wanted for one in _CONTROLLERS if one in places}
        candidates = {"": unified / wanted, "beside": unified.parent / wanted, **found}
        folders = {one: folder for one, folder in candidates.items() if (folder / "cgroup.procs").is_file()}
        return cls(folders) if folders else None

    def kill(self, *, limit_s: float = 10.0) -> None:
        """End every process in it: first forking is forbidden, so that no process outruns the killing."""
        for folder in set(self._folders.values()):
            _write(folder / "pids.max", "0")
            _write(folder / "cgroup.kill", "1")
        give_up = time.monotonic() + limit_s
        while time.monotonic() < give_up and (pids := self._pids()):
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)

    def _pids(self) -> list[int]:
        found: set[int] = set()
        for folder in set(self._folders.values()):
            with contextlib.suppress(OSError, ValueError):
                found |= {int(word) for word in (folder / "cgroup.procs").read_text().split()}
        return sorted(found - {os.getpid()})

    def remove(self) -> None:
        """Delete it; it must be empty, which takes the kernel a moment after the last process."""
        give_up = time.monotonic() + _REMOVE_LIMIT_S
        for folder in set(self._folders.values()):
            while folder.is_dir() and time.monotonic() < give_up:
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.005)

    def _limit(self, cpu: float | None, memory_bytes: int, num_tasks: int) -> None:
        quota = None if cpu is None else max(1000, int(cpu * _PERIOD_US))
        wanted: dict[str, list[tuple[str, str]]] = {
            "memory": [("memory.max", str(memory_bytes)), ("memory.limit_in_bytes", str(memory_bytes))],
            "pids": [("pids.max", str(num_tasks))],
            "cpu": [("cpu.max", f"{quota} {_PERIOD_US}"), ("cpu.cfs_quota_us", str(quota))] if quota else [],
        }
        for controller, folder in list(self._folders.items()):
            if not any(_write(folder / name, text) for name, text in wanted[controller]):
                if list(self._folders.values()).count(folder) == 1:
                    with contextlib.suppress(OSError):
                        folder.rmdir()
                del self._folders[controller]


def _places(own: Path) -> dict[str, str]:
    """Where this process is, by controller; version 2 has the name ""."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return {}
    return {controller: path for _, controllers, path in lines for controller in controllers.split(",")}


def _version_2(name: str, path: str | None, root: Path) -> dict[str, Path]:
    """Below our own group, or beside it: a group that holds processes may have no limited children."""
    if path is None or not (root / "cgroup.controllers").is_file():
        return {}
    own = root / path.lstrip("/")
    for parent in (own, own.parent):
        if parent != root.parent and (folder := _new(parent, name)) is not None:
            with contextlib.suppress(OSError):
                has = (folder / "cgroup.controllers").read_text().split()
                if found := [controller for controller in _CONTROLLERS if controller in has]:
                    return dict.fromkeys(found, folder)
            with contextlib.suppress(OSError):
                folder.rmdir()
    return {}


def _version_1(name: str, places: dict[str, str], root: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for controller in _CONTROLLERS:
        if controller in places:
            folder = _new(root / controller / places[controller].lstrip("/"), name)
            if folder is not None:
                found[controller] = folder
    return found


def _new(parent: Path, name: str) -> Path | None:
    folder = parent / f"strop-{name}"
    try:
        folder.mkdir()
    except OSError:
        return None
    return folder


def _write(file: Path, text: str) -> bool:
    """Never creates a file: outside the kernel's file system there is nothing to limit."""
    try:
        with file.open("r+") as target:
            target.write(text)
    except OSError:
        return False
    return True
