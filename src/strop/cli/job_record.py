"""A checked job -> its row in the store and the recorder that writes to it; jobs that were lost are told of.

Used by both kinds of session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from strop.bilingual import Bilingual, both
from strop.cli.job_log import logging_to
from strop.cli.resume import Resumed
from strop.config.describing import describe
from strop.config.job import JobConfig
from strop.diagnosis.webhook import Webhook
from strop.errors import StropError, told_of
from strop.learners import models
from strop.processes.mark import this_process
from strop.rl.interfaces import Recorder
from strop.schema.job import Job, JobStatus
from strop.store.database import Database, open_database
from strop.store.jobs import claim_job, create_job, describe_job, fail_lost_jobs, live_jobs
from strop.store.published import INPUTS_EVENT
from strop.store.recorder import StoreRecorder
from strop.tracing.event_bus import Subscriber
from strop.trackers.sink import TrackedRun
from strop.trackers.tracking import Tracking, tracking

_log = logging.getLogger(__name__)


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
    say: models.OnProgress,
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
    recorder.event(INPUTS_EVENT, both("data and code hashed", "已计算数据与代码的哈希"), data=inputs)
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


def _lost_note(job: Job) -> Bilingual:
    return both(
        f"{job.job_id} was RUNNING without a process and is now FAILED",
        f"{job.job_id} 的进程已不存在，现已标记为 FAILED",
    )


def _other_note(job: Job) -> Bilingual:
    return both(
        f"{job.job_id} trains here too (process {job.pid}): both will be slower",
        f"{job.job_id} 也在本机训练（进程 {job.pid}）：两者都会变慢",
    )
