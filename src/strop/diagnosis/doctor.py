"""Step by step: what a run tells -> the findings that began, went on or ended with that step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from strop.diagnosis.hacks import HACKS
from strop.diagnosis.record import Record
from strop.diagnosis.rules import TROUBLES, Rule, Seen
from strop.diagnosis.texts import RULES
from strop.schema.finding import Evidence, Finding, Text
from strop.schema.trajectory import Group

QUIET_STEPS = 3
"""Steps for which a rule must not hold before its finding has ended: what flickers is one finding."""

ALL_RULES: dict[str, Rule] = {**TROUBLES, **HACKS}


class Doctor:
    """Looks at one run. Give it a step's trajectories first, then its metrics, then ask it to `look`."""

    def __init__(self, job_id: str, algorithm: str) -> None:
        self._job_id = job_id
        self._record = Record(algorithm)
        self._open: dict[str, Finding] = {}

    def trajectories(self, step: int, groups: Iterable[Group]) -> None:
        self._record.add_groups(step, groups)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._record.add_metrics(step, values)

    @property
    def open_findings(self) -> list[Finding]:
        return list(self._open.values())

    def look(self, step: int) -> list[Finding]:
        """Apply every rule. Returns each finding that changed: begun (first and last step are equal), gone
        on, or ended."""
        changed: list[Finding] = []
        for name, rule in ALL_RULES.items():
            seen, known = rule(self._record), self._open.get(name)
            if seen is not None:
                changed.append(self._held(name, seen, known, step))
            elif known is not None and step - known.last_step >= QUIET_STEPS:
                del self._open[name]
                changed.append(
                    known.model_copy(update={"ended_step": known.last_step + 1, "updated_at": _now()})
                )
        return changed

    def _held(self, name: str, seen: Seen, known: Finding | None, step: int) -> Finding:
        now = _now()
        finding = Finding(
            job_id=self._job_id,
            rule=name,
            severity=RULES[name].severity,
            first_step=known.first_step if known is not None else step,
            last_step=step,
            summary=Text.of(seen.summary),
            evidence=Evidence(
                curves=[curve for curve in seen.curves if curve.points],
                trajectories=seen.trajectories,
                numbers={key: value for key, value in seen.numbers.items() if value == value},
            ),
            created_at=known.created_at if known is not None else now,
            updated_at=now,
        )
        self._open[name] = finding
        return finding


def _now() -> datetime:
    return datetime.now(UTC)
