"""`strop` in a process of its own whose lines a test can wait for, and which it may kill.

`from fakes.running import Running`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from strop.store.database import open_database
from strop.store.jobs import list_jobs


class Running:
    """Stdout and stderr are one stream of lines. Leaving the block kills what still runs."""

    def __init__(self, *arguments: object, home: Path, **env: str) -> None:
        self._news = threading.Condition()
        self._ended = False
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "strop.cli", *map(str, arguments)],
            env={**os.environ, "STROP_HOME": str(home), "STROP_LANG": "en", **env},
            cwd=home.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.end()

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def says(self, start: str, timeout_s: float = 240) -> str:
        """Wait for a line that starts so, and give it."""
        seen = 0
        with self._news:
            while True:
                for line in self.lines[seen:]:
                    if line.startswith(start):
                        return line
                seen = len(self.lines)
                assert not self._ended, f"ended without {start!r}:\n{self.text}"
                assert self._news.wait(timeout_s), f"no {start!r} within {timeout_s} s:\n{self.text}"

    def kill(self) -> None:
        """SIGKILL, as from outside."""
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self, timeout_s: float = 400) -> int:
        """Wait for the process and the last of its lines; its exit status."""
        status = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


def trainer_of(home: Path, *, within_s: float = 60) -> int:
    """The process that trains the newest job of that home."""
    database = open_database(f"sqlite:///{home}/strop.db")
    give_up = time.monotonic() + within_s
    try:
        while True:
            with database.read() as session:
                newest = next(iter(list_jobs(session, limit=1).items), None)
            if newest is not None and newest.pid is not None:
                return newest.pid
            assert time.monotonic() < give_up, "no job has a trainer"
            time.sleep(0.02)
    finally:
        database.close()


def processes_with(mark: str) -> dict[int, str]:
    """Command lines of all live processes that have `NAME=value` in their environment, by pid."""
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def workers_of(mark: str) -> dict[int, int]:
    """Function workers of a run started with `mark` in its environment: worker's pid by its reaper's."""
    pids = [pid for pid, command in processes_with(mark).items() if "strop.workers.worker" in command]
    parents = {pid: _parent(pid) for pid in pids}
    return {parent: pid for pid, parent in parents.items() if parent in parents}


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
