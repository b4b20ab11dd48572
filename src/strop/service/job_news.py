"""A job -> what is new of it since the last look: statuses, events, steps, checkpoints, how far a phase is.

For everything that follows a job while it works. Values come out; how they are sent is for a door to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from strop.schema.job import Checkpoint, Event, JobStatus, Progress
from strop.service.job_record import JobRecord
from strop.store.checkpoints import list_checkpoints
from strop.store.database import Database
from strop.store.events import find_progress, list_events
from strop.store.jobs import get_job
from strop.store.metrics import step_metrics
from strop.store.submissions import submissions_of

_LAST_EVENTS = ("published", "not_published", "result")
"""What comes after the last step and its checkpoint; the rest comes before what it explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepValues:
    """All metrics of a step that are known by now."""

    step: int
    values: dict[str, float]


News: TypeAlias = Event | StepValues | Checkpoint | Progress | JobRecord
"""A `JobRecord` where the status has changed."""


class JobNews:
    """Remembers what it has given out. With `progress` also checkpoints, and how far each phase is."""

    def __init__(self, database: Database, job_id: str, *, progress: bool) -> None:
        self._database = database
        self._job_id = job_id
        self._with_progress = progress
        self._status: JobStatus | None = None
        self._cursor: str | None = None
        self._num_values: dict[int, int] = {}
        self._progress: Progress | None = None
        self._checkpoints: set[tuple[int, bool]] = set()
        self.ended = False
        """Whether nothing more can come."""

    def look(self) -> list[News]:
        """What came since the last look, in the order in which it makes sense."""
        job_id = self._job_id
        with self._database.read() as session:
            job = get_job(session, job_id)
            page = list_events(session, job_id, after=self._cursor)
            curves = step_metrics(session, job_id, since_step=max(self._num_values, default=0))
            submission = submissions_of(session, [job_id]).get(job_id)
            progress = find_progress(session, job_id) if self._with_progress else None
            saved = list_checkpoints(session, job_id, with_removed=True) if self._with_progress else []
        self._cursor = page.next
        news: list[News] = [event for event in page.items if event.kind not in _LAST_EVENTS]
        news += self._new_steps(curves)
        for one in saved:
            if (one.step, one.published) not in self._checkpoints:
                self._checkpoints.add((one.step, one.published))
                news.append(one)
        news += [event for event in page.items if event.kind in _LAST_EVENTS]
        if progress is not None and progress != self._progress and not job.status.final:
            self._progress = progress
            news.append(progress)
        if job.status is not self._status:
            self._status = job.status
            news.append(JobRecord(job=job, submission=submission))
        self.ended = job.status.final and not page.more
        return news

    def _new_steps(self, curves: dict[str, list[tuple[int, float]]]) -> list[StepValues]:
        steps: dict[int, dict[str, float]] = {}
        for name, points in curves.items():
            for step, value in points:
                steps.setdefault(step, {})[name] = value
        new = [
            StepValues(step=step, values=values)
            for step, values in sorted(steps.items())
            if len(values) > self._num_values.get(step, 0)
        ]
        self._num_values |= {one.step: len(one.values) for one in new}
        return new
