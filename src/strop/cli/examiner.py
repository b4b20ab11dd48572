"""What a run tells -> the diagnosis beside it: findings in the store, and an event for each that begins or
ends."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from strop.diagnosis.doctor import Doctor
from strop.diagnosis.record import REWARD
from strop.diagnosis.texts import RULES
from strop.diagnosis.webhook import Webhook
from strop.errors import StoppedByDiagnosis
from strop.locales import in_both, msg
from strop.schema.finding import Finding, Severity
from strop.schema.run_event import RolloutsFinished, RunEvent, StepMeasured
from strop.schema.trajectory import Group
from strop.store.recorder import StoreRecorder

FINDING_EVENT = "finding"

_log = logging.getLogger(__name__)


class Examiner:
    """Subscribes to a run, and writes what it finds into the run's store.

    A step is looked at once its rewards are known; a rule that fails costs its step's diagnosis and nothing
    else.
    """

    def __init__(
        self,
        store: StoreRecorder,
        job_id: str,
        algorithm: str,
        *,
        stop_on: Collection[str] = (),
        webhook: Webhook | None = None,
    ) -> None:
        self._store = store
        self._job_id = job_id
        self._doctor = Doctor(job_id, algorithm)
        self._begun: set[tuple[str, int]] = set()
        self._stop_on = frozenset(stop_on)
        self._webhook = webhook

    def receive(self, event: RunEvent) -> None:
        match event:
            case StepMeasured(step=step, values=values):
                self.metrics(step, values)
            case RolloutsFinished(step=step, groups=groups, split="train"):
                self.trajectories(step, groups)
            case _:
                pass

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Raises:
        StoppedByDiagnosis: a finding of the step is among those that the run ends with.
        """
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
        self._stop_if_asked(changed, step)

    def trajectories(self, step: int, groups: tuple[Group, ...]) -> None:
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
        title, summary = RULES[finding.rule].title, finding.summary
        if ended:
            said = msg("{title} has ended", title=title)
        else:
            said = msg("{rule} {title}: {summary}", rule=finding.rule, title=title, summary=summary.message)
        data = {"rule": finding.rule, "severity": finding.severity.value, "ended": ended}
        self._store.event(FINDING_EVENT, said, step=step, data=data)
        self._send("ended" if ended else "began", finding, step)

    def _stop_if_asked(self, changed: Sequence[Finding], step: int) -> None:
        for finding in changed:
            if finding.ended_step is None and self._ends_the_run(finding):
                text, summary = RULES[finding.rule], finding.summary
                self._send("stopped", finding, step)
                raise StoppedByDiagnosis(
                    msg(
                        "step {step}: the diagnosis ended the run, as diagnosis.stop_on asks: {rule} {title}: "
                        "{summary}",
                        step=step,
                        rule=finding.rule,
                        title=text.title,
                        summary=summary.message,
                    ),
                    fix=text.advice,
                )

    def _ends_the_run(self, finding: Finding) -> bool:
        severe = finding.severity is Severity.ALARM and Severity.ALARM in self._stop_on
        return severe or Severity.WARNING in self._stop_on or finding.rule in self._stop_on

    def _send(self, state: str, finding: Finding, step: int) -> None:
        """`state`: the finding began or ended, or the run was stopped for it."""
        if self._webhook is None:
            return
        text = RULES[finding.rule]
        told = {
            "type": f"finding.{state}",
            "job_id": self._job_id,
            "step": step,
            "rule": finding.rule,
            "severity": finding.severity.value,
            "first_step": finding.first_step,
            "last_step": finding.last_step,
            "title": in_both(text.title),
            "summary": finding.summary.model_dump(),
            "cause": in_both(text.cause),
            "advice": in_both(text.advice),
            "numbers": finding.evidence.numbers,
        }
        self._webhook.send(f"{self._job_id}.{finding.rule}.{finding.first_step}.{state}", told)
