"""A job -> its trainer's process: started apart from the server, found again after its restart, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from strop.errors import StoreError
from strop.locales import Message, msg
from strop.memory import with_huge_pages
from strop.processes import ending
from strop.processes.ending import kill_group
from strop.processes.mark import ProcessMark, is_gone, process_with
from strop.schema.job import Job
from strop.service.settings import Settings
from strop.store.jobs import process_of

LOG = "trainer.log"
_TAIL_BYTES = 64 * 1024

TRAINER_COMMAND: Sequence[str] = (sys.executable, "-m", "strop.cli", "train")


class Trainers:
    """The trainers' processes. Those that this server started are reaped, and their exit status is known.

    Concurrency:
        For one thread at a time.
    """

    def __init__(self, settings: Settings, command: Sequence[str] = TRAINER_COMMAND) -> None:
        self._settings = settings
        self._command = tuple(command)
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._exits: dict[str, int] = {}

    def folder(self, job_id: str) -> Path:
        return self._settings.home / "jobs" / job_id

    def start(self, job_id: str) -> ProcessMark:
        """Start one. It leads a session of its own, so that the server's end is not its end.

        Raises:
            StoreError: the machine refused.
        """
        folder = self.folder(job_id)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / LOG).open("ab") as log:
                child = subprocess.Popen(
                    [*self._command, job_id],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self._settings.home,
                    env=self._environment(),
                    start_new_session=True,
                )
        except OSError as error:
            raise StoreError(
                msg("the trainer of job {job_id!r} cannot be started: {error}", job_id=job_id, error=error)
            ) from error
        self._children[job_id] = child
        self._exits.pop(job_id, None)
        mark = process_with(child.pid)
        # One that ended at once is a zombie until it is reaped, and has no mark any more.
        return mark or ProcessMark(host=os.uname().nodename, pid=child.pid, started="ended")

    def reap(self) -> None:
        """Collect the trainers that have ended; their exit status is kept until it is taken."""
        for job_id, child in list(self._children.items()):
            code = child.poll()
            if code is not None:
                self._exits[job_id] = code
                del self._children[job_id]

    def lives(self, job: Job) -> bool:
        """Whether the job's trainer is there. One that nobody has claimed is not."""
        child = self._children.get(job.job_id)
        if child is not None and child.poll() is None:
            return True
        mark = process_of(job)
        return mark is not None and not is_gone(mark)

    def kill(self, job: Job) -> None:
        """End the trainer and its whole group now."""
        mark = process_of(job)
        if mark is not None and not is_gone(mark):
            kill_group(mark.pid)

    def take_exit(self, job_id: str) -> int | None:
        """The exit status of a trainer that has ended, negative for a signal; None where it is not known."""
        self.reap()
        return self._exits.pop(job_id, None)

    def tail(self, job_id: str, *, lines: int) -> list[str]:
        """The last lines that the process itself wrote, outside its own recording."""
        try:
            with (self.folder(job_id) / LOG).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return []
        return [line for line in text.splitlines() if line.strip()][-lines:]

    def let_go(self) -> None:
        """Leave the trainers to themselves: the server ends, they do not."""
        for child in self._children.values():
            if child.poll() is None:
                child.returncode = 0  # else Popen takes a living child for forgotten, and warns
        self._children.clear()

    def forget_log(self, job_id: str) -> None:
        """Begin the log anew, once its lines are in the store."""
        with contextlib.suppress(OSError):
            (self.folder(job_id) / LOG).unlink()

    def _environment(self) -> dict[str, str]:
        settings = self._settings
        environment = {
            **with_huge_pages(os.environ),
            "STROP_HOME": str(settings.home),
            "PYTHONUNBUFFERED": "1",
        }
        if settings.database_url is not None:
            environment["STROP_DATABASE_URL"] = settings.database_url
        if settings.storage_url is not None:
            environment["STROP_STORAGE_URL"] = settings.storage_url
        return environment


def exit_text(code: int | None) -> Message:
    """How a trainer ended, for people.

    >>> exit_text(-9)
    'was killed by SIGKILL; usually the system has run out of memory'
    """
    if code is None:
        return msg("ended without an explanation")
    text = ending.exit_text(code)
    if code >= 0:
        text += msg(" without an explanation")
    if code == -signal.SIGKILL:
        text += msg("; usually the system has run out of memory")
    return text
