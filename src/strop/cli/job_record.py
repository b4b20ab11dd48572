"""A checked job -> its row in the store and everything that records it: log lines, events, diagnosis, trackers.

Used by both kinds of session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from strop.cli.run_folder import Resumed
from strop.config.describing import describe
from strop.config.job import JobConfig
from strop.diagnosis.doctor import Doctor
from strop.diagnosis.record import REWARD
from strop.diagnosis.texts import RULES
from strop.diagnosis.webhook import Webhook
from strop.errors import StoppedByDiagnosis, StropError, told_of
from strop.locales import Message, in_both, msg
from strop.processes.mark import this_process
from strop.rl.interfaces import Recorder
from strop.schema.finding import Finding, Severity
from strop.schema.job import Job, JobStatus
from strop.schema.run_event import RolloutsFinished, RunEvent, StepMeasured
from strop.schema.trajectory import Group
from strop.store.database import Database, open_database
from strop.store.jobs import claim_job, create_job, describe_job, fail_lost_jobs, live_jobs
from strop.store.published import INPUTS_EVENT
from strop.store.recorder import StoreRecorder
from strop.tracing.event_bus import Subscriber
from strop.trackers.sink import TrackedRun
from strop.trackers.tracking import Tracking, tracking

if TYPE_CHECKING:
    from strop.learners.models import OnProgress


class _Lines(logging.Handler):
    def __init__(self, on_line: Callable[[str, str, str], None]) -> None:
        super().__init__(logging.INFO)
        self._on_line = on_line

    def emit(self, record: logging.LogRecord) -> None:
        for line in self.format(record).splitlines():
            self._on_line("trainer", "stderr", f"{record.levelname} {line}")


@contextmanager
def logging_to(on_line: Callable[[str, str, str], None]) -> Generator[None]:
    """While the block runs, everything logged below `strop` becomes lines of component `trainer`."""
    logger, lines = logging.getLogger("strop"), _Lines(on_line)
    logger.addHandler(lines)
    try:
        yield
    finally:
        logger.removeHandler(lines)


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


OnEvent = Callable[[str, str], None]
"""Takes an event's kind and its message as it is recorded; from any thread."""


class Submitted(Protocol):
    """A job that is in the store already, and what becomes of the statuses that the run records.

    A `local` one is a `strop run`'s own; `on_event` hears every event of it.
    """

    @property
    def job_id(self) -> str: ...

    @property
    def local(self) -> bool: ...

    @property
    def on_event(self) -> OnEvent | None: ...

    def around(self, recorder: StoreRecorder) -> Subscriber: ...


def open_record(
    stack: ExitStack,
    job: Job,
    *,
    folder: Path,
    resumed: Resumed | None,
    say: OnProgress,
    inputs: Mapping[str, Any],
    submitted: Submitted | None = None,
) -> StoreRecorder:
    """Write the job into the store as this process's, and record and log for it until `stack` closes.

    `inputs` are the hashes of its data and code. A `submitted` job is in the store already.

    Side effects:
        Jobs whose process is gone become FAILED; of a server's jobs the server takes care.
    """
    database = open_database()
    stack.callback(database.close)
    with database.write() as session:
        if submitted is None:
            create_job(session, job)
        else:
            describe_job(session, job.job_id, job.config)
    lost, others = (
        _begin(database, job, folder=folder, resumed=resumed)
        if submitted is None or submitted.local
        else ([], [])
    )
    on_event = submitted.on_event if submitted is not None else None
    recorder = stack.enter_context(
        StoreRecorder(database, job.job_id)
        if on_event is None
        else HeardRecorder(database, job.job_id, on_event)
    )
    stack.enter_context(logging_to(recorder.log))
    for text in [*map(_lost_note, lost), *map(_other_note, others)]:
        recorder.event("note", text)
        if submitted is None:
            say(text)
    recorder.event(INPUTS_EVENT, msg("data and code hashed"), data=inputs)
    return recorder


class HeardRecorder(StoreRecorder):
    """A recorder whose events are heard in this process, too, whether the database takes them or not.

    A full disk takes the database along with the checkpoints, and whoever could free it must hear of it.
    """

    def __init__(self, database: Database, job_id: str, on_event: OnEvent) -> None:
        super().__init__(database, job_id)
        self._on_event = on_event

    def event(
        self, kind: str, message: str, *, step: int | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        self._on_event(kind, message)
        super().event(kind, message, step=step, data=data)


@contextmanager
def watching(
    config: JobConfig, job_id: str, folder: Path, store: StoreRecorder
) -> Iterator[tuple[Tracking, Webhook | None]]:
    """The trackers and the webhook that a job names. What they have to tell becomes events; one that cannot be
    written is a line of the log."""

    def tell(kind: str, text: str) -> None:
        try:
            store.event(kind, text)
        except StropError as error:
            _log.warning("%s (and no event of it could be written: %s)", text, error)

    run = TrackedRun(job_id=job_id, name=config.name, folder=folder, config=describe(config))
    asked = config.diagnosis.webhook
    webhook = None if asked is None else Webhook(asked, lambda text: tell("webhook_failed", text))
    try:
        with tracking(config.trackers, run, tell) as trackers:
            yield trackers, webhook
    finally:
        if webhook is not None:
            webhook.close()


@contextmanager
def telling_failed_start(recorder: Recorder) -> Iterator[None]:
    """Inside, machines are started: if one cannot be, the job ends here, with the reason."""
    try:
        yield
    except asyncio.CancelledError:
        recorder.status(JobStatus.CANCELED)
        raise
    except Exception as error:
        recorder.status(JobStatus.FAILED, error=told_of(error))
        raise


def _begin(
    database: Database, job: Job, *, folder: Path, resumed: Resumed | None
) -> tuple[Sequence[Job], Sequence[Job]]:
    """Claim the job. Returns the jobs that were lost, and those that train on this machine too."""
    before = resumed.job_id if resumed is not None else None
    # The folder could be claimed, so the process that had it is gone, on whatever machine it was.
    surely = before if resumed is not None and resumed.lies_in(folder) else None
    with database.write() as session:
        lost = fail_lost_jobs(session, surely=surely)
        others = [other for other in live_jobs(session) if other.job_id != job.job_id]
        claim_job(session, job.job_id, this_process(), resumes=before)
    return lost, others


def _lost_note(job: Job) -> Message:
    return msg("{job_id} was RUNNING without a process and is now FAILED", job_id=job.job_id)


def _other_note(job: Job) -> Message:
    return msg(
        "{job_id} trains here too (process {pid}): both will be slower", job_id=job.job_id, pid=job.pid
    )
