"""One Recorder -> several: what the run says once, the store and the terminal both hear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strop.rl.interfaces import Recorder
from strop.schema.job import JobStatus
from strop.schema.trajectory import Group


class Broadcast:
    """Forwards every call to each recorder, in order."""

    def __init__(self, recorders: Sequence[Recorder]) -> None:
        self._recorders = tuple(recorders)

    def status(self, status: JobStatus, *, error: str | None = None) -> None:
        for recorder in self._recorders:
            recorder.status(status, error=error)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        for recorder in self._recorders:
            recorder.metrics(step, values)

    def trajectories(self, step: int, groups: tuple[Group, ...], *, split: str) -> None:
        for recorder in self._recorders:
            recorder.trajectories(step, groups, split=split)

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
        for recorder in self._recorders:
            recorder.checkpoint(
                step,
                folder,
                policy_version=policy_version,
                validation=validation,
                published=published,
                best=best,
            )

    def checkpoint_removed(self, folder: Path) -> None:
        for recorder in self._recorders:
            recorder.checkpoint_removed(folder)

    def event(
        self, kind: str, message: str, *, step: int | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        for recorder in self._recorders:
            recorder.event(kind, message, step=step, data=data)

    def progress(self, step: int, phase: str, done: int, total: int) -> None:
        for recorder in self._recorders:
            recorder.progress(step, phase, done, total)
