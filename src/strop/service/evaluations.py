"""Evaluations: measure a model, a checkpoint or what a deployment serves on files of rows, with functions.

An evaluation is a job that trains nothing: it queues with the others, a trainer's process does it, its
rollouts are its trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from strop.errors import ConfigError, MissingError, Problem, RequestError
from strop.locales import msg
from strop.schema.access import Caller
from strop.schema.job import Job, JobKind, JobStatus
from strop.schema.submission import EVALUATED_EVENT, Evaluation, Submission
from strop.service import jobs
from strop.service.job_plan import JobFunction, NewJob, RowsFile
from strop.service.job_record import new_job_id
from strop.service.services import Services
from strop.store.checkpoints import get_checkpoint
from strop.store.deployments import get_deployment
from strop.store.events import list_events
from strop.store.jobs import get_job
from strop.store.models import usable_model
from strop.store.submissions import submissions_of

KNOWN = frozenset(
    {
        "max_tokens",
        "max_length",
        "max_prompt_length",
        "seed",
        "max_attempts",
        "max_failure_rate",
        "sampling_dtype",
    }
)
"""Hyper-parameters that mean something where nothing is learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvaluation:
    """One of `model`, `checkpoint_id` and `deployed_model` says what is measured. Every row is rolled out
    `n_rollouts` times; the result is mean@n."""

    model: str | None = None
    checkpoint_id: str | None = None
    deployed_model: str | None = None
    rows: Sequence[RowsFile]
    functions: Sequence[JobFunction]
    n_rollouts: int = 1
    temperature: float = 0.0
    hyper_parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    name: str = "evaluation"
    problems: Sequence[Problem] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """An evaluation, and what has come of each dataset by now."""

    job: Job
    submission: Submission
    results: Sequence[Mapping[str, Any]] = ()

    @property
    def settings(self) -> Evaluation:
        return self.submission.evaluation or Evaluation()

    @property
    def mean(self) -> float | None:
        """Over all datasets; None until each has its result."""
        means = [one["mean"] for one in self.results if one.get("mean") is not None]
        return math.fsum(means) / len(means) if means and len(means) == len(self.settings.datasets) else None


def submit(
    services: Services, caller: Caller, new: NewEvaluation, *, request: Mapping[str, Any]
) -> EvaluationRecord:
    """Check an evaluation as a job that trains, lay out its rows, queue it.

    Raises:
        ConfigError, DataError: everything that is wrong with it and its rows. ModelError, MissingError: what
        it measures does not exist.
    """
    _check_hyper_parameters(new.hyper_parameters)
    job_id = new_job_id("ev")
    with services.database.read() as session:
        source, label = _subject(session, caller, new)
    trained = NewJob(
        model=source,
        training=new.rows,
        functions=new.functions,
        hyper_parameters={**new.hyper_parameters, "batch_size": 1},
        name=new.name,
        problems=new.problems,
    )
    with jobs.folder_of_new(services, job_id) as folder:
        config, plan = jobs.prepare(services, caller, trained, folder=folder, default_output=job_id)
        evaluation = Evaluation(
            n_rollouts=new.n_rollouts,
            temperature=new.temperature,
            datasets=[Path(name).name.partition(".")[0] for _, _, name in plan.files],
        )
        made = jobs.create(
            services,
            caller,
            job_id,
            config,
            plan,
            name=new.name,
            model=label,
            request={**request, "evaluation": evaluation.model_dump()},
            kind=JobKind.EVALUATION,
        )
    assert made.submission is not None
    return EvaluationRecord(job=made.job, submission=made.submission)


def list_evaluations(
    services: Services, caller: Caller, *, page_no: int, page_size: int, status: JobStatus | None = None
) -> tuple[list[EvaluationRecord], int]:
    """A page of the workspace's evaluations, newest first, and how many there are."""
    found, total = jobs.list_jobs(
        services, caller, page_no=page_no, page_size=page_size, status=status, kind=JobKind.EVALUATION
    )
    with services.database.read() as session:
        records = [_record(session, one.job, one.submission) for one in found if one.submission is not None]
    return records, total


def get(services: Services, caller: Caller, evaluation_id: str) -> EvaluationRecord:
    """Raises MissingError: no such evaluation in the caller's workspace."""
    with services.database.read() as session:
        job = _evaluation(session, caller, evaluation_id)
        return _record(session, job, submissions_of(session, [evaluation_id])[evaluation_id])


def cancel(services: Services, caller: Caller, evaluation_id: str) -> EvaluationRecord:
    """End an evaluation; what was measured stays.

    Raises:
        MissingError: no such evaluation here. ConflictError: it has ended.
    """
    _check_kind(services, caller, evaluation_id)
    jobs.cancel(services, caller, evaluation_id)
    return get(services, caller, evaluation_id)


def delete(services: Services, caller: Caller, evaluation_id: str) -> None:
    """Delete an ended evaluation with its trajectories.

    Raises:
        MissingError: no such evaluation here. ConflictError: it has not ended.
    """
    _check_kind(services, caller, evaluation_id)
    jobs.delete(services, caller, evaluation_id)


def _check_hyper_parameters(given: Mapping[str, Any]) -> None:
    unknown = sorted(set(given) - KNOWN)
    if unknown:
        fix = f"known here: {', '.join(sorted(KNOWN))}"
        message = "has no effect where nothing is learned"
        problems = [Problem(place=f"hyper_parameters.{key}", message=message, fix=fix) for key in unknown]
        raise ConfigError("evaluation", problems)


def _subject(session: Session, caller: Caller, new: NewEvaluation) -> tuple[str, str]:
    """What the trainer loads, and what people call it."""
    if new.checkpoint_id is not None:
        checkpoint = get_checkpoint(session, new.checkpoint_id, workspace_id=caller.workspace_id)
        return str(checkpoint.folder), new.checkpoint_id
    if new.deployed_model is not None:
        deployment = get_deployment(session, new.deployed_model, workspace_id=caller.workspace_id)
        return deployment.source, new.deployed_model
    if new.model is None:
        raise RequestError(msg("nothing to measure"), fix=msg("name a model, a checkpoint or a deployment"))
    usable_model(session, new.model, workspace_id=caller.workspace_id)
    return new.model, new.model


def _check_kind(services: Services, caller: Caller, evaluation_id: str) -> None:
    with services.database.read() as session:
        _evaluation(session, caller, evaluation_id)


def _evaluation(session: Session, caller: Caller, evaluation_id: str) -> Job:
    job = get_job(session, evaluation_id, workspace_id=caller.workspace_id)
    if job.kind is not JobKind.EVALUATION:
        raise MissingError(
            msg("no evaluation {evaluation_id!r}", evaluation_id=evaluation_id),
            fix=msg("list the evaluations and take an id from there"),
        )
    return job


def _record(session: Session, job: Job, submission: Submission) -> EvaluationRecord:
    """Of a dataset that was measured again the last result counts."""
    events = list_events(session, job.job_id, kind=EVALUATED_EVENT, limit=1000).items
    results = {str(event.data["dataset"]): event.data for event in events}
    return EvaluationRecord(job=job, submission=submission, results=list(results.values()))
