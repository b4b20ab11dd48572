"""What a run tells -> the diagnosis beside it: findings in the store, and an event for each that begins or
ends."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strop.cli.text import t
from strop.diagnosis.doctor import Doctor
from strop.diagnosis.record import REWARD
from strop.diagnosis.texts import RULES
from strop.schema.finding import Finding
from strop.schema.job import JobStatus
from strop.schema.trajectory import Group
from strop.store.recorder import StoreRecorder

FINDING_EVENT = "finding"

_log = logging.getLogger(__name__)


class Examiner:
    """Satisfies `pipeline.ports.Recorder`: hears what the store hears, and writes what it finds there.

    A step is looked at once its rewards are known; a rule that fails costs its step's diagnosis and nothing
    else.
    """

    def __init__(self, store: StoreRecorder, job_id: str, algorithm: str) -> None:
        self._store = store
        self._doctor = Doctor(job_id, algorithm)
        self._begun: set[tuple[str, int]] = set()

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._doctor.metrics(step, values)
        if REWARD not in values:
            return
        try:
            changed = self._doctor.look(step)
        except Exception:  # noqa: BLE001  the edge of the diagnosis: training goes on without it
            _log.exception("the diagnosis of step %d failed", step)
            return
        for finding in changed:
            self._store.finding(finding)
            self._tell(finding, step)

    def trajectories(self, step: int, groups: tuple[Group, ...], *, split: str) -> None:
        if split != "train":
            return
        try:
            self._doctor.trajectories(step, groups)
        except Exception:  # noqa: BLE001  the edge of the diagnosis: training goes on without it
            _log.exception("the diagnosis could not read the rollouts of step %d", step)

    def _tell(self, finding: Finding, step: int) -> None:
        """An event where it begins and where it ends; in between it is in the store alone."""
        key = (finding.rule, finding.first_step)
        ended = finding.ended_step is not None
        if key in self._begun and not ended:
            return
        self._begun.add(key)
        text = RULES[finding.rule]
        title = t(text.title.en, text.title.zh)
        summary = t(finding.summary.en, finding.summary.zh)
        message = (
            t(f"{title} has ended", f"{title}：已结束") if ended else f"{finding.rule} {title}: {summary}"
        )
        data = {"rule": finding.rule, "severity": finding.severity.value, "ended": ended}
        self._store.event(FINDING_EVENT, message, step=step, data=data)

    def status(self, status: JobStatus, *, error: str | None = None) -> None:
        """Says nothing of curves."""

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
        """Says nothing of curves."""

    def checkpoint_removed(self, folder: Path) -> None:
        """Says nothing of curves."""

    def event(
        self, kind: str, message: str, *, step: int | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        """Says nothing of curves."""

    def progress(self, step: int, phase: str, done: int, total: int) -> None:
        """Says nothing of curves."""
