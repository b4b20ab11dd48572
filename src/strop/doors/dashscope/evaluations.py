"""`/evaluations`: measure a model, a checkpoint or what a deployment serves on files of rows, with functions.

An evaluation is a job that trains nothing: it queues with the others, a trainer's process does it, its
rollouts are its trajectories.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Self, cast

from fastapi import APIRouter, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from sqlalchemy.orm import Session
from starlette.responses import Response

from strop.doors.dashscope.fine_tunes import cancel_job, new_job_id
from strop.doors.dashscope.job_request import (
    MAX_ITEMS,
    MAX_SETTINGS,
    DatasetAsked,
    FunctionAsked,
    JobAsked,
    Shown,
)
from strop.doors.dashscope.paging import PageHere
from strop.doors.dashscope.replies import language_of, output
from strop.doors.json_body import JsonRoute
from strop.doors.services import CallerHere, Services, ServicesHere
from strop.errors import ConfigError, MissingError, Problem
from strop.schema.access import Caller
from strop.schema.job import Event, Job, JobKind, JobStatus
from strop.schema.sampling import checked_temperature
from strop.schema.submission import EVALUATED_EVENT, Evaluation, Submission
from strop.service.job_plan import Planner, lay_out_files, remove_folder
from strop.service.job_views import moment
from strop.store.checkpoints import get_checkpoint
from strop.store.deployments import get_deployment
from strop.store.events import list_events, record_event
from strop.store.jobs import create_job, delete_job, get_job, numbered_jobs
from strop.store.models import usable_model
from strop.store.submissions import create_submission, submissions_of

router = APIRouter(route_class=JsonRoute, prefix="/evaluations", tags=["evaluations"])

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


class EvaluationAsked(BaseModel):
    """One of `model`, `checkpoint_id` and `deployed_model` says what is measured. Every row is rolled out
    `n_rollouts` times; the result is mean@n, at temperature 0 unless told otherwise."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str | None = Field(default=None, min_length=1, max_length=1024)
    checkpoint_id: str | None = Field(default=None, min_length=1, max_length=256)
    deployed_model: str | None = Field(default=None, min_length=1, max_length=256)
    datasets: list[DatasetAsked] = Field(min_length=1, max_length=64)
    rollout: FunctionAsked | None = None
    rewards: list[FunctionAsked] = Field(min_length=1, max_length=MAX_ITEMS)
    n_rollouts: Annotated[int, Field(ge=1, le=256)] = 1
    temperature: Annotated[float, Field(ge=0, le=100), AfterValidator(checked_temperature)] = 0.0
    hyper_parameters: dict[str, Any] = Field(default_factory=dict, max_length=MAX_SETTINGS)
    name: Shown = Field(default="evaluation", min_length=1, max_length=256)

    @model_validator(mode="after")
    def _one_subject(self) -> Self:
        given = [one for one in (self.model, self.checkpoint_id, self.deployed_model) if one is not None]
        if len(given) != 1:
            raise ValueError(f"name one of model, checkpoint_id and deployed_model, not {len(given)}")
        if self.n_rollouts > 1 and self.temperature == 0:
            raise ValueError(
                "at temperature 0 every rollout is the same: set temperature, or n_rollouts to 1"
            )
        return self


@router.post("", summary="Measure a model on files of rows")
def create(request: Request, services: ServicesHere, caller: CallerHere, asked: EvaluationAsked) -> Response:
    job_id = new_job_id("ev")
    folder = services.settings.home / "jobs" / job_id
    try:
        job, submission, notes = _planned(services, caller, asked, job_id, folder)
        with services.database.write() as session:
            create_job(session, job)
            create_submission(session, submission)
            for note in notes:
                record_event(
                    session,
                    Event(job_id=job_id, kind="not_honoured", message=note, created_at=datetime.now(UTC)),
                )
    except BaseException:
        remove_folder(folder)
        raise
    services.wake()
    return output(request, _shown(job, submission, [], language_of(request)))


@router.get("", summary="List evaluations, newest first")
def list_(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    page: PageHere,
    status: JobStatus | None = None,
) -> Response:
    with services.database.read() as session:
        jobs, total = numbered_jobs(
            session,
            workspace_id=caller.workspace_id,
            status=status,
            kind=JobKind.EVALUATION,
            page_no=page.page_no,
            page_size=page.page_size,
        )
        submissions = submissions_of(session, [job.job_id for job in jobs])
        language = language_of(request)
        shown = [
            _shown(job, submissions[job.job_id], _results(session, job.job_id), language) for job in jobs
        ]
    return output(request, page.filled(total, evaluations=shown))


@router.get("/{evaluation_id}", summary="One evaluation, with the results that are there by now")
def get(request: Request, services: ServicesHere, caller: CallerHere, evaluation_id: str) -> Response:
    return _told(request, services, caller, evaluation_id)


@router.post("/{evaluation_id}/cancel", summary="End an evaluation; what was measured stays")
def cancel(request: Request, services: ServicesHere, caller: CallerHere, evaluation_id: str) -> Response:
    with services.database.read() as session:
        _evaluation(session, caller, evaluation_id)
    cancel_job(services, caller, evaluation_id)
    return _told(request, services, caller, evaluation_id)


@router.delete("/{evaluation_id}", summary="Delete an ended evaluation with its trajectories")
def delete(request: Request, services: ServicesHere, caller: CallerHere, evaluation_id: str) -> Response:
    with services.database.write() as session:
        _evaluation(session, caller, evaluation_id)
        delete_job(session, evaluation_id)
    remove_folder(services.settings.home / "jobs" / evaluation_id)
    return output(request, {"status": "success", "evaluation_id": evaluation_id})


def _planned(
    services: Services, caller: Caller, asked: EvaluationAsked, job_id: str, folder: Path
) -> tuple[Job, Submission, list[str]]:
    """Look everything up and check it, as for a job that trains."""
    unknown = sorted(set(asked.hyper_parameters) - KNOWN)
    if unknown:
        fix = f"known here: {', '.join(sorted(KNOWN))}"
        problems = [
            Problem(
                place=f"hyper_parameters.{key}", message="means nothing where nothing is learned", fix=fix
            )
            for key in unknown
        ]
        raise ConfigError("evaluation", problems)
    settings = services.settings
    with services.database.read() as session:
        source, label = _subject(session, caller, asked)
        planner = Planner(session, services.blobs, settings.home, settings.limits, caller.workspace_id)
        wanted = JobAsked(
            model=source,
            training_datasets=asked.datasets,
            rollout=asked.rollout,
            rewards=asked.rewards,
            hyper_parameters={**asked.hyper_parameters, "batch_size": 1},
            job_name=asked.name,
        )
        plan = planner.plan(wanted, folder=folder, default_output=job_id)
        lay_out_files(session, services.blobs, plan.files, folder=folder, workspace_id=caller.workspace_id)
    folder.mkdir(parents=True, exist_ok=True)
    config = plan.told(services.flow.check(plan.job))
    evaluation = Evaluation(
        n_rollouts=asked.n_rollouts,
        temperature=asked.temperature,
        datasets=[Path(name).name.partition(".")[0] for _, _, name in plan.files],
    )
    job = Job(
        job_id=job_id,
        name=asked.name,
        status=JobStatus.PENDING,
        model=label,
        kind=JobKind.EVALUATION,
        workspace_id=caller.workspace_id,
        config=services.flow.describe(config),
        created_at=datetime.now(UTC),
    )
    submission = Submission(
        job_id=job_id,
        creator=caller.key_name,
        request={**asked.model_dump(mode="json", exclude_none=True), "evaluation": evaluation.model_dump()},
        config=config.model_dump(mode="json", exclude_unset=True),
        bundles=plan.bundles,
        layers=plan.layers,
        files=plan.files,
    )
    return job, submission, plan.notes


def _subject(session: Session, caller: Caller, asked: EvaluationAsked) -> tuple[str, str]:
    """What the trainer loads, and what people call it."""
    if asked.checkpoint_id is not None:
        checkpoint = get_checkpoint(session, asked.checkpoint_id, workspace_id=caller.workspace_id)
        return str(checkpoint.folder), asked.checkpoint_id
    if asked.deployed_model is not None:
        deployment = get_deployment(session, asked.deployed_model, workspace_id=caller.workspace_id)
        return deployment.source, asked.deployed_model
    name = cast("str", asked.model)
    usable_model(session, name, workspace_id=caller.workspace_id)
    return name, name


def _evaluation(session: Session, caller: Caller, evaluation_id: str) -> Job:
    job = get_job(session, evaluation_id, workspace_id=caller.workspace_id)
    if job.kind is not JobKind.EVALUATION:
        raise MissingError(
            f"no evaluation {evaluation_id!r}", fix="list the evaluations and take an id from there"
        )
    return job


def _results(session: Session, job_id: str) -> list[dict[str, Any]]:
    """What came of each dataset; of one that was measured again, the last."""
    told = list_events(session, job_id, kind=EVALUATED_EVENT, limit=1000).items
    return list({str(event.data["dataset"]): event.data for event in told}.values())


def _told(request: Request, services: Services, caller: Caller, evaluation_id: str) -> Response:
    with services.database.read() as session:
        job = _evaluation(session, caller, evaluation_id)
        submission = submissions_of(session, [evaluation_id])[evaluation_id]
        results = _results(session, evaluation_id)
    return output(request, _shown(job, submission, results, language_of(request)))


def _shown(job: Job, submission: Submission, results: list[dict[str, Any]], language: str) -> dict[str, Any]:
    evaluation = submission.evaluation or Evaluation()
    means = [one["mean"] for one in results if one.get("mean") is not None]
    shown: dict[str, Any] = {
        "evaluation_id": job.job_id,
        "name": job.name,
        "status": job.status.value,
        "model": job.model,
        "n_rollouts": evaluation.n_rollouts,
        "temperature": evaluation.temperature,
        "datasets": evaluation.datasets,
        "results": results,
        "mean": math.fsum(means) / len(means) if means and len(means) == len(evaluation.datasets) else None,
        "create_time": moment(job.created_at),
        "start_time": moment(job.started_at),
        "end_time": moment(job.ended_at),
        "creator": submission.creator,
        "workspace_id": job.workspace_id,
    }
    if job.status is JobStatus.FAILED:
        shown |= {"code": "EvaluationFailed", "message": job.error_in(language) or "the evaluation failed"}
    return shown
