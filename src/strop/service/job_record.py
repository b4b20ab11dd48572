"""A checked job -> its rows in the store: its id, what was submitted, the notes on it.

The one place where a job comes into being: for `service.jobs`, for evaluations, and for `strop run`, which
trains in its own process without a server and starts fast, so that nothing heavy is imported here.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from strop.schema.access import DEFAULT_WORKSPACE
from strop.schema.job import Event, Job, JobKind, JobStatus
from strop.schema.submission import Submission
from strop.store.events import record_event
from strop.store.jobs import claim_job, create_job, move_job
from strop.store.submissions import create_submission

if TYPE_CHECKING:
    from strop.config.job import JobConfig
    from strop.processes.mark import ProcessMark
    from strop.service.job_plan import JobPlan
    from strop.store.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job, and what was submitted; None for one that was written by a run without either."""

    job: Job
    submission: Submission | None


def new_job_id(prefix: str = "ft") -> str:
    """Sortable by time; the rest cannot be guessed."""
    return f"{prefix}-{datetime.now(UTC):%Y%m%d%H%M%S}-{secrets.token_hex(8)}"


def record_job(
    database: Database,
    job_id: str,
    config: JobConfig,
    described: dict[str, Any],
    *,
    request: Mapping[str, Any],
    name: str | None = None,
    model: str | None = None,
    kind: JobKind = JobKind.TRAINING,
    workspace_id: str = DEFAULT_WORKSPACE,
    creator: str = "local",
    plan: JobPlan | None = None,
    owner: ProcessMark | None = None,
) -> JobRecord:
    """Write a job. `described` is its configuration without secrets, `request` what was asked for; `name` and
    `model` are those of the configuration unless people know others. With an `owner`, the process that trains
    it, it is RUNNING at once and no server supervises it; else it is PENDING."""
    job = Job(
        job_id=job_id,
        name=name or config.name,
        status=JobStatus.PENDING,
        model=model or config.model.name,
        kind=kind,
        workspace_id=workspace_id,
        config=described,
        created_at=datetime.now(UTC),
    )
    submission = Submission(
        job_id=job_id,
        creator=creator,
        request=dict(request),
        config=config.model_dump(mode="json", exclude_unset=True),
        bundles=plan.bundles if plan else {},
        layers=plan.layers if plan else {},
        files=plan.files if plan else [],
        owner=str(owner) if owner else None,
    )
    with database.write() as session:
        create_job(session, job)
        create_submission(session, submission)
        for note in plan.notes if plan else ():
            event = Event(job_id=job_id, kind="not_honoured", message=note, created_at=datetime.now(UTC))
            record_event(session, event)
        if owner is not None:
            claim_job(session, job_id, owner)
            move_job(session, job_id, JobStatus.RUNNING)
    return JobRecord(job=job, submission=submission)
