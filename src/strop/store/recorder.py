"""A run's events -> rows, on a thread of its own: recording costs the loop a queue entry.

`cli` makes one a job, subscribes it to the run and closes it. Nothing is dropped in silence: what the
database refuses is kept and tried again; what can never be written is reported by `flush` and `close`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from strop.schema.finding import Finding
from strop.schema.job import Checkpoint, Event, JobStatus, LogLine, Progress
from strop.schema.run_event import (
    CheckpointRemoved,
    CheckpointSaved,
    Noted,
    PhaseAdvanced,
    RolloutsFinished,
    RunEvent,
    StatusChanged,
    StepMeasured,
)
from strop.schema.span import Span
from strop.schema.trajectory import Group
from strop.store.checkpoints import checkpoint_id, mark_removed, record_checkpoint
from strop.store.database import Database
from strop.store.events import record_event, record_progress
from strop.store.findings import record_finding
from strop.store.jobs import get_job, move_job
from strop.store.logs import record_lines
from strop.store.metrics import record_metrics
from strop.store.spans import record_spans
from strop.store.trajectories import record_trajectories
from strop.store.writer import Writer

PROGRESS_S = 0.5
"""Seconds between two reports on how far a phase is."""


class StoreRecorder:
    """Writes everything that happens to one job.

    Raises:
        StoreError: when made, if the job does not exist; `flush` and `close`, if something was not written;
            any record, if the database refuses and the queue is full, or after `close`.
    Concurrency:
        Every method may be called from any thread. Records are written in the order they were accepted.
    Side effects:
        Starts a thread; `close` ends it. What was handed over must not be changed afterwards.
    """

    def __init__(self, database: Database, job_id: str) -> None:
        with database.read() as session:
            get_job(session, job_id)
        self._database = database
        self._job_id = job_id
        self._writer = Writer(database, name=f"recorder {job_id}")
        self._phase, self._told_progress = "", 0.0

    @property
    def database(self) -> Database:
        """Where it writes."""
        return self._database

    def receive(self, event: RunEvent) -> None:
        match event:
            case StatusChanged(status=status, error=error):
                self.status(status, error=error)
            case StepMeasured(step=step, values=values):
                self.metrics(step, values)
            case RolloutsFinished(step=step, groups=groups, split=split):
                self.trajectories(step, groups, split=split)
            case CheckpointSaved():
                self.checkpoint(
                    event.step,
                    event.folder,
                    policy_version=event.policy_version,
                    validation=event.validation,
                    published=event.published,
                    best=event.best,
                )
            case CheckpointRemoved(folder=folder):
                self.checkpoint_removed(folder)
            case Noted(kind=kind, message=message, step=step, data=data):
                self.event(kind, message, step=step, data=data)
            case PhaseAdvanced(step=step, phase=phase, done=done, total=total):
                self.progress(step, phase, done, total)

    def status(self, status: JobStatus, *, error: str | None = None) -> None:
        """Move the job at once, after all that was recorded before.

        Raises:
            StoreError: not an allowed move.
        """
        self._writer.drain()
        with self._database.write() as session:
            move_job(session, self._job_id, status, error=error)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        kept = dict(values)
        self._writer.put(lambda session: record_metrics(session, self._job_id, step, kept))

    def trajectories(self, step: int, groups: tuple[Group, ...], *, split: str) -> None:
        self._writer.put(
            lambda session: record_trajectories(session, self._job_id, step, groups, split=split)
        )

    def spans(self, spans: Sequence[Span]) -> None:
        """Record spans that were made in this process; those of functions come to the server."""
        kept = tuple(spans)
        self._writer.put(lambda session: record_spans(session, self._job_id, kept))

    def finding(self, finding: Finding) -> None:
        """Record what the diagnosis found, or how far it goes by now."""
        self._writer.put(lambda session: record_finding(session, finding))

    def checkpoint(
        self,
        step: int,
        folder: Path,
        *,
        policy_version: int,
        validation: float | None,
        published: bool,
        best: bool,
    ) -> None:
        checkpoint = Checkpoint(
            checkpoint_id=checkpoint_id(self._job_id, step),
            job_id=self._job_id,
            step=step,
            folder=folder,
            policy_version=policy_version,
            validation=validation,
            published=published,
            best=best,
            created_at=datetime.now(UTC),
        )
        self._writer.put(lambda session: record_checkpoint(session, checkpoint))

    def checkpoint_removed(self, folder: Path) -> None:
        self._writer.put(lambda session: mark_removed(session, folder))

    def event(
        self, kind: str, message: str, *, step: int | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        self.note(kind, message, step=step, data=data)

    def note(
        self, kind: str, message: str, *, step: int | None = None, data: Mapping[str, Any] | None = None
    ) -> Event:
        """Record an event. Returns it as it is recorded."""
        event = Event(
            job_id=self._job_id,
            kind=kind,
            message=message,
            step=step,
            data=dict(data or {}),
            created_at=datetime.now(UTC),
        )
        self._writer.put(lambda session: record_event(session, event))
        return event

    def progress(self, step: int, phase: str, done: int, total: int) -> None:
        """For those who watch: at most twice a second, and the end of each phase."""
        now = time.monotonic()
        if done < total and phase == self._phase and now - self._told_progress < PROGRESS_S:
            return
        self._phase, self._told_progress = phase, now
        told = Progress(job_id=self._job_id, step=step, phase=phase, done=done, total=total)
        self._writer.put(lambda session: record_progress(session, told))

    def log(self, component: str, stream: str, text: str) -> None:
        """Record output of a process, one row a line."""
        now = datetime.now(UTC)
        lines = [
            LogLine(job_id=self._job_id, component=component, stream=stream, text=line, created_at=now)
            for line in text.splitlines()
        ]
        if lines:
            self._writer.put(lambda session: record_lines(session, lines))

    def taken(self) -> bool:
        """Whether the database takes what is recorded; waits until it has tried."""
        return self._writer.taken()

    def flush(self) -> None:
        """Wait until everything accepted so far is written.

        Raises:
            StoreError: the database refuses (all is kept and tried again), or records were lost since the
                last call because they can never be written.
        """
        self._writer.flush()

    def close(self) -> None:
        """Flush, then end the thread. Harmless when closed already.

        Raises:
            StoreError: as `flush`; what could not be written then is lost.
        """
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
