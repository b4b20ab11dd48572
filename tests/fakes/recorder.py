"""A recorder that keeps everything in lists, and the order of it all in `log`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from strop.locales import rendered
from strop.schema.job import ALLOWED_MOVES, JobStatus
from strop.schema.trajectory import Group


class FakeRecorder:
    """`on(entry)` is called with each log entry, so that a test can act at a certain moment. What a run tells
    must be in both languages; a test that makes up events of its own sets `wants_chinese` to False."""

    wants_chinese = True

    def __init__(self, on: Callable[[tuple[Any, ...]], None] = lambda entry: None) -> None:
        self.on = on
        self.log: list[tuple[Any, ...]] = []
        self.statuses = [JobStatus.PENDING]
        self.error: str | None = None
        self.values: dict[int, dict[str, float]] = {}
        self.groups: dict[tuple[str, int], tuple[Group, ...]] = {}
        self.checkpoints: list[dict[str, Any]] = []
        self.removed: list[str] = []
        self.events: list[tuple[str, str, int | None]] = []
        self.reports: list[tuple[int, str, int, int]] = []

    def status(self, status: JobStatus, *, error: str | None = None) -> None:
        assert status in ALLOWED_MOVES[self.statuses[-1]], f"{self.statuses[-1]} -> {status}"
        self.statuses.append(status)
        self.error = error
        self._note("status", status)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.values.setdefault(step, {}).update(values)
        self._note("metrics", step)

    def trajectories(self, step: int, groups: tuple[Group, ...], *, split: str) -> None:
        again = "rolled_back" in self.kinds()
        assert again or (split, step) not in self.groups, f"{split} of step {step} recorded twice"
        self.groups[split, step] = groups
        self._note("trajectories", step, split)

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
        self.checkpoints.append(
            {
                "step": step,
                "folder": folder,
                "policy_version": policy_version,
                "validation": validation,
                "published": published,
                "best": best,
            }
        )
        self._note("checkpoint", step)

    def checkpoint_removed(self, folder: Path) -> None:
        self.removed.append(folder.name)

    def event(
        self, kind: str, message: str, *, step: int | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        if self.wants_chinese and kind != "checkpoint_not_removed":  # a path and what the system says of it
            assert re.search("[\u4e00-\u9fff]", rendered(message, "zh")), (
                f"{kind}: {message!r} is English alone"
            )
        self.events.append((kind, message, step))
        self._note("event", kind)

    def progress(self, step: int, phase: str, done: int, total: int) -> None:
        self.reports.append((step, phase, done, total))
        self._note("progress", step, phase, done, total)

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.events]

    def _note(self, *entry: Any) -> None:
        self.log.append(entry)
        self.on(entry)
