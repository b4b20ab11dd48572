"""What a run tells -> nothing: who hears only a part of it overrides that part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strop.schema.job import JobStatus
from strop.schema.trajectory import Group


class Listener:
    """Satisfies `rl.interfaces.Recorder`, and does nothing with what it hears."""

    def status(self, status: JobStatus, *, error: str | None = None) -> None: ...

    def metrics(self, step: int, values: Mapping[str, float]) -> None: ...

    def trajectories(self, step: int, groups: tuple[Group, ...], *, split: str) -> None: ...

    def checkpoint(
        self,
        step: int,
        folder: Path,
        *,
        policy_version: int,
        validation: float | None,
        published: bool,
        best: bool,
    ) -> None: ...

    def checkpoint_removed(self, folder: Path) -> None: ...

    def event(
        self, kind: str, message: str, *, step: int | None = None, data: Mapping[str, Any] | None = None
    ) -> None: ...

    def progress(self, step: int, phase: str, done: int, total: int) -> None: ...
