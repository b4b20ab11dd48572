"""A job's id -> what stands above all of its tabs: state, progress, time left, what it learns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fastapi import Request
from sqlalchemy.orm import Session
from starlette.responses import HTMLResponse

from strop.console.pages import page
from strop.locales import kept, msg
from strop.schema.access import Caller
from strop.schema.job import PHASE_WORDS, PREPARING_EVENT, TARGET_REACHED_EVENT, Job, JobStatus
from strop.schema.submission import Submission
from strop.service.services import Services
from strop.store.events import find_progress, list_events, planned_steps
from strop.store.jobs import get_job
from strop.store.metrics import last_step, last_values, recent_mean
from strop.store.submissions import submissions_of

MOVING = (JobStatus.PENDING, JobStatus.QUEUING, JobStatus.RUNNING, JobStatus.CANCELING)
"""States that pass by themselves: pages of such jobs look again."""

REWARD = "critic/rewards/mean"
LOSS = "actor/loss"
VALIDATION = "validation/data/reward/mean@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is. `total` None: not known yet. `left_s`: seconds, while it trains.

    `measure` is the name of the number that tells whether it learns, with its last value. `target_reached`:
    it ended before its last step, because validation was good enough. `phase` is what it is busy with now, in
    English and Chinese, with how far that is; None where nobody has said.
    """

    step: int
    total: int | None
    left_s: float | None
    measure: str
    value: float | None
    validation: float | None
    target_reached: bool
    phase: str | None = None

    @property
    def share(self) -> float:
        return min(1.0, self.step / self.total) if self.total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHere:
    """A job as its pages show it."""

    job: Job
    submission: Submission | None
    progress: Progress

    @property
    def moves(self) -> bool:
        return self.job.status in MOVING

    @property
    def hyper_parameters(self) -> dict[str, Any]:
        return self.job.config.get("training", {}).get("hyper_parameters", {})

    @property
    def method(self) -> str:
        return method_of(self.job)

    @property
    def duration_s(self) -> float | None:
        if self.job.started_at is None:
            return None
        return ((self.job.ended_at or datetime.now(UTC)) - self.job.started_at).total_seconds()

    @property
    def can(self) -> set[str]:
        """What its owner may ask for now; a `strop run` looks after itself."""
        if self.submission is None:
            return set()
        status = self.job.status
        found: set[str] = set()
        if status in (JobStatus.PENDING, JobStatus.QUEUING, JobStatus.RUNNING):
            found |= {"pause", "cancel"}
        if status is JobStatus.SUSPENDED:
            found |= {"resume", "cancel"}
        return found


def method_of(job: Job) -> str:
    training: dict[str, Any] = job.config.get("training", {})
    kind = str(training.get("type") or "reinforcement")
    algorithm = training.get("hyper_parameters", {}).get("algorithm")
    return str(algorithm).upper() if kind == "reinforcement" and algorithm else kind.replace("_", " ")


def progress_of(session: Session, job: Job) -> Progress:
    step = last_step(session, job.job_id)
    total = planned_steps(session, job.job_id)
    if total is None:
        asked = job.config.get("training", {}).get("hyper_parameters", {}).get("max_steps")
        total = asked if isinstance(asked, int) else None
    values = last_values(session, job.job_id, (REWARD, LOSS, VALIDATION))
    measure = REWARD if REWARD in values else LOSS
    left_s = None
    if total and job.status is JobStatus.RUNNING:
        a_step = recent_mean(session, job.job_id, "timing/s/step")
        left_s = None if a_step is None else a_step * max(0, total - step)
    return Progress(
        step=step,
        total=total,
        left_s=left_s,
        measure=measure,
        value=values[measure][1] if measure in values else None,
        validation=values[VALIDATION][1] if VALIDATION in values else None,
        target_reached=job.status is JobStatus.SUCCEEDED
        and bool(list_events(session, job.job_id, kind=TARGET_REACHED_EVENT, limit=1).items),
        phase=phase_of(session, job, step),
    )


def phase_of(session: Session, job: Job, step: int) -> str | None:
    """What the trainer said last that it is busy with: a phase, or what it prepares before there is any."""
    if job.status not in (JobStatus.RUNNING, JobStatus.CANCELING):
        return None
    at = find_progress(session, job.job_id)
    if at is None:
        said = list_events(session, job.job_id, kind=PREPARING_EVENT).items
        if not said or step:
            return None
        return kept(said[-1].message, said[-1].said)
    if at.done >= at.total:
        return None
    phase = PHASE_WORDS.get(at.phase, at.phase)
    if at.total <= 1:
        return phase
    return msg("{phase} {done}/{total}", phase=phase, done=at.done, total=at.total)


def job_here(session: Session, job_id: str, caller: Caller) -> JobHere:
    """Raises:
    MissingError: no such job in the caller's workspace.
    """
    job = get_job(session, job_id, workspace_id=caller.workspace_id)
    submission = submissions_of(session, [job_id]).get(job_id)
    return JobHere(job=job, submission=submission, progress=progress_of(session, job))


def job_page(request: Request, services: Services, here: JobHere, tab: str, **values: Any) -> HTMLResponse:
    """One tab of a job."""
    return page(request, f"job_{tab}.html", here=here, tab=tab, **values)
