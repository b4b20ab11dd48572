"""What the loop reports -> typed events -> everyone who subscribed to the run.

The loop sees the bus as its `rl.interfaces.Recorder`. The store, the terminal, the diagnosis and the trackers
subscribe; `cli` puts them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from strop.schema.job import JobStatus
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
from strop.schema.trajectory import Group


class Subscriber(Protocol):
    """Returns quickly; ignores the kinds of events that it has no use for."""

    def receive(self, event: RunEvent) -> None:
        """Raises:
        StoppedByDiagnosis: the run has to end after this step.
        """
        ...


class EventBus:
    """Delivers each event to all subscribers, in the order in which they were given, before it returns."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = subscribers

    def publish(self, event: RunEvent) -> None:
        for subscriber in self._subscribers:
            subscriber.receive(event)

    def status(self, status: JobStatus, *, error: str | None = None) -> None:
        self.publish(StatusChanged(status=status, error=error))

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.publish(StepMeasured(step=step, values=values))

    def trajectories(self, step: int, groups: tuple[Group, ...], *, split: str) -> None:
        self.publish(RolloutsFinished(step=step, groups=groups, split=split))

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
        self.publish(
            CheckpointSaved(
                step=step,
                folder=folder,
                policy_version=policy_version,
                validation=validation,
                published=published,
                best=best,
            )
        )

    def checkpoint_removed(self, folder: Path) -> None:
        self.publish(CheckpointRemoved(folder=folder))

    def event(
        self, kind: str, message: str, *, step: int | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        self.publish(Noted(kind=kind, message=message, step=step, data=data or {}))

    def progress(self, step: int, phase: str, done: int, total: int) -> None:
        self.publish(PhaseAdvanced(step=step, phase=phase, done=done, total=total))
