"""The loop that looks after submitted jobs: starts what waits, notices what died, ends what will not end.

It keeps nothing that matters: after a restart the rows say which jobs there are and who works on each.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from strop.errors import ConflictError, StropError, told_of
from strop.locales import Message, msg
from strop.schema.job import Event, Job, JobStatus, LogLine
from strop.schema.submission import Submission, Wanted
from strop.service.settings import Settings
from strop.service.supervisor.trainers import Trainers, exit_text
from strop.store.checkpoints import list_checkpoints
from strop.store.database import Database
from strop.store.events import record_event
from strop.store.jobs import claim_job, get_job, move_job, process_of, unclaim_job
from strop.store.logs import record_lines
from strop.store.submissions import count_deaths, unfinished

_log = logging.getLogger(__name__)

LOOK_S = 0.5
_NUM_LAST_LINES = 20
_UNCLAIMED_GRACE_S = 30.0
"""A trainer whose server died between starting it and noting that claims the job itself within this."""

_AT_WORK = (JobStatus.RUNNING, JobStatus.CANCELING)


class Supervisor:
    """Looks after the jobs of one store.

    Concurrency:
        `run` belongs to an event loop and looks in a thread; `wake` may be called from any thread.
    """

    def __init__(self, settings: Settings, database: Database, trainers: Trainers) -> None:
        self._settings = settings
        self._database = database
        self._trainers = trainers
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unclaimed_since: dict[str, datetime] = {}

    def wake(self) -> None:
        """Look now: something has changed."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    async def run(self) -> None:
        """Look again and again until cancelled. Trainers are left to work on."""
        self._loop = asyncio.get_running_loop()
        while True:
            try:
                await asyncio.to_thread(self.look)
            except StropError as error:
                _log.error("the supervisor could not check the jobs: %s", error)
            except Exception:  # noqa: BLE001 - a process edge: no job may stay unattended for another
                _log.exception("the supervisor failed; it will try again")
            try:
                await asyncio.wait_for(self._woken.wait(), LOOK_S)
            except TimeoutError:
                continue
            self._woken.clear()

    def close(self) -> None:
        """Leave the trainers to work on."""
        self._trainers.let_go()

    def look(self) -> None:
        """Bring every job one step further."""
        self._trainers.reap()
        with self._database.read() as session:
            jobs = unfinished(session)
        num_working = 0
        for job, submission in jobs:
            if job.status in _AT_WORK:
                if self._works(job):
                    num_working += 1
                    self._end_if_overdue(job, submission)
                else:
                    self._after_death(job, submission)
        waiting = [job for job, _ in jobs if job.status in (JobStatus.PENDING, JobStatus.QUEUING)]
        for job in waiting:
            if self._trainers.lives(job):  # it was paused, and is just ending
                num_working += 1
            elif num_working < self._settings.max_running_jobs:
                num_working += self._start(job)
            elif job.status is JobStatus.PENDING:
                self._move(job, JobStatus.QUEUING)

    def _works(self, job: Job) -> bool:
        if self._trainers.lives(job):
            self._unclaimed_since.pop(job.job_id, None)
            return True
        if process_of(job) is not None:
            return False
        since = self._unclaimed_since.setdefault(job.job_id, datetime.now(UTC))
        return (datetime.now(UTC) - since).total_seconds() < _UNCLAIMED_GRACE_S

    def _start(self, job: Job) -> bool:
        """The move comes first: a cancel that comes at the same time wins or is seen by the trainer."""
        if not self._move(job, JobStatus.RUNNING):
            return False
        try:
            mark = self._trainers.start(job.job_id)
        except StropError as error:
            with self._database.write() as session:
                move_job(session, job.job_id, JobStatus.FAILED, error=told_of(error))
            return False
        with self._database.write() as session:
            if not get_job(session, job.job_id).status.final:
                claim_job(session, job.job_id, mark)
        return True

    def _end_if_overdue(self, job: Job, submission: Submission) -> None:
        """A trainer that does not end in its grace is killed; what it saved stays."""
        if job.status is not JobStatus.CANCELING or submission.wanted_at is None:
            return
        waited = (datetime.now(UTC) - submission.wanted_at).total_seconds()
        if waited > self._settings.cancel_grace_s:
            self._trainers.kill(job)

    def _after_death(self, job: Job, submission: Submission) -> None:
        code = self._trainers.take_exit(job.job_id)
        tail = self._trainers.tail(job.job_id, lines=_NUM_LAST_LINES)
        with self._database.write() as session:
            job = get_job(session, job.job_id)
            if job.status not in _AT_WORK:  # its last word came meanwhile
                return
            now = datetime.now(UTC)
            lines = [
                LogLine(job_id=job.job_id, component="trainer", stream="stderr", text=line, created_at=now)
                for line in tail
            ]
            record_lines(session, lines)
            self._settle(session, job, submission, exit_text(code), tail)
        self._trainers.forget_log(job.job_id)
        self._unclaimed_since.pop(job.job_id, None)

    def _settle(
        self, session: Session, job: Job, submission: Submission, ending: Message, tail: list[str]
    ) -> None:
        """What becomes of a job whose trainer is gone."""
        unclaim_job(session, job.job_id)
        reached = max((one.step for one in list_checkpoints(session, job.job_id)), default=0)
        deaths = 1 if reached > submission.reached else submission.deaths + 1
        if job.status is JobStatus.CANCELING:
            while_ = msg(", while the job was being canceled")
            self._note(session, job, "trainer_ended", msg("the trainer ") + ending + while_)
            move_job(session, job.job_id, JobStatus.CANCELED)
        elif submission.wanted is Wanted.PAUSE:
            while_ = msg(", while the job was being paused")
            self._note(session, job, "trainer_ended", msg("the trainer ") + ending + while_)
            move_job(session, job.job_id, JobStatus.SUSPENDED)
        elif deaths > self._settings.max_deaths:
            move_job(session, job.job_id, JobStatus.FAILED, error=_reason(ending, deaths, reached, tail))
        else:
            count_deaths(session, job.job_id, deaths=deaths, reached=reached)
            self._note(session, job, "trainer_died", _next_try(ending, deaths, reached, self._settings))
            move_job(session, job.job_id, JobStatus.QUEUING)

    def _move(self, job: Job, status: JobStatus) -> bool:
        try:
            with self._database.write() as session:
                move_job(session, job.job_id, status)
        except ConflictError:  # canceled or paused meanwhile
            return False
        return True

    def _note(self, session: Session, job: Job, kind: str, message: Message) -> None:
        record_event(
            session, Event(job_id=job.job_id, kind=kind, message=message, created_at=datetime.now(UTC))
        )


def _next_try(ending: Message, deaths: int, reached: int, settings: Settings) -> Message:
    where = (
        msg("resumes from the checkpoint of step {reached}", reached=reached)
        if reached
        else msg("starts over")
    )
    limit = settings.max_deaths
    return msg(
        "the trainer {ending}; the job {where} (attempt {deaths} of {limit})",
        ending=ending,
        where=where,
        deaths=deaths,
        limit=limit,
    )


def _reason(ending: Message, deaths: int, reached: int, tail: list[str]) -> Message:
    since = (
        msg("since the checkpoint of step {reached}", reached=reached)
        if reached
        else msg("before the first checkpoint")
    )
    text = msg(
        "the trainer {ending}; it has now died {deaths} times {since}, so the job has failed",
        ending=ending,
        deaths=deaths,
        since=since,
    )
    return text + msg("\nits last lines:\n") + "\n".join(tail) if tail else text
