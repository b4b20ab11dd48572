"""`/evaluations`: measure a model, a checkpoint or a deployment on files of rows, with functions."""

from __future__ import annotations

from typing import Annotated, Any, Self

from fastapi import APIRouter, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from starlette.responses import Response

from strop.doors.dashscope.job_replies import moment
from strop.doors.dashscope.job_request import (
    MAX_ITEMS,
    MAX_SETTINGS,
    JobFunctionRequest,
    PlainText,
    UploadedDataset,
)
from strop.doors.dashscope.new_jobs import new_functions, rows_of
from strop.doors.dashscope.paging import PageHere
from strop.doors.dashscope.replies import language_of, output
from strop.doors.json_body import JsonRoute
from strop.doors.requests import CallerHere, ServicesHere
from strop.schema.job import JobStatus
from strop.schema.sampling import checked_temperature
from strop.service import evaluations
from strop.service.evaluations import EvaluationRecord, NewEvaluation

router = APIRouter(route_class=JsonRoute, prefix="/evaluations", tags=["evaluations"])


class EvaluationRequest(BaseModel):
    """One of `model`, `checkpoint_id` and `deployed_model` says what is measured. Every row is rolled out
    `n_rollouts` times; the result is mean@n, at temperature 0 unless told otherwise."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str | None = Field(default=None, min_length=1, max_length=1024)
    checkpoint_id: str | None = Field(default=None, min_length=1, max_length=256)
    deployed_model: str | None = Field(default=None, min_length=1, max_length=256)
    datasets: list[UploadedDataset] = Field(min_length=1, max_length=64)
    rollout: JobFunctionRequest | None = None
    rewards: list[JobFunctionRequest] = Field(min_length=1, max_length=MAX_ITEMS)
    n_rollouts: Annotated[int, Field(ge=1, le=256)] = 1
    temperature: Annotated[float, Field(ge=0, le=100), AfterValidator(checked_temperature)] = 0.0
    hyper_parameters: dict[str, Any] = Field(default_factory=dict, max_length=MAX_SETTINGS)
    name: PlainText = Field(default="evaluation", min_length=1, max_length=256)

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

    def new(self) -> NewEvaluation:
        rows, problems = rows_of("training_datasets", self.datasets)
        return NewEvaluation(
            model=self.model,
            checkpoint_id=self.checkpoint_id,
            deployed_model=self.deployed_model,
            rows=rows,
            functions=new_functions(self.rollout, self.rewards),
            n_rollouts=self.n_rollouts,
            temperature=self.temperature,
            hyper_parameters=self.hyper_parameters,
            name=self.name,
            problems=problems,
        )


@router.post("", summary="Measure a model on files of rows")
def create(request: Request, services: ServicesHere, caller: CallerHere, body: EvaluationRequest) -> Response:
    sent = body.model_dump(mode="json", exclude_none=True)
    return _evaluation(request, evaluations.submit(services, caller, body.new(), request=sent))


@router.get("", summary="List evaluations, newest first")
def list_(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    page: PageHere,
    status: JobStatus | None = None,
) -> Response:
    found, total = evaluations.list_evaluations(
        services, caller, page_no=page.page_no, page_size=page.page_size, status=status
    )
    language = language_of(request)
    return output(request, page.filled(total, evaluations=[_reply(one, language) for one in found]))


@router.get("/{evaluation_id}", summary="One evaluation, with the results that are there by now")
def get(request: Request, services: ServicesHere, caller: CallerHere, evaluation_id: str) -> Response:
    return _evaluation(request, evaluations.get(services, caller, evaluation_id))


@router.post("/{evaluation_id}/cancel", summary="End an evaluation; what was measured stays")
def cancel(request: Request, services: ServicesHere, caller: CallerHere, evaluation_id: str) -> Response:
    return _evaluation(request, evaluations.cancel(services, caller, evaluation_id))


@router.delete("/{evaluation_id}", summary="Delete an ended evaluation with its trajectories")
def delete(request: Request, services: ServicesHere, caller: CallerHere, evaluation_id: str) -> Response:
    evaluations.delete(services, caller, evaluation_id)
    return output(request, {"status": "success", "evaluation_id": evaluation_id})


def _evaluation(request: Request, record: EvaluationRecord) -> Response:
    return output(request, _reply(record, language_of(request)))


def _reply(record: EvaluationRecord, language: str) -> dict[str, Any]:
    job, settings = record.job, record.settings
    reply: dict[str, Any] = {
        "evaluation_id": job.job_id,
        "name": job.name,
        "status": job.status.value,
        "model": job.model,
        "n_rollouts": settings.n_rollouts,
        "temperature": settings.temperature,
        "datasets": settings.datasets,
        "results": record.results,
        "mean": record.mean,
        "create_time": moment(job.created_at),
        "start_time": moment(job.started_at),
        "end_time": moment(job.ended_at),
        "creator": record.submission.creator,
        "workspace_id": job.workspace_id,
    }
    if job.status is JobStatus.FAILED:
        reply |= {"code": "EvaluationFailed", "message": job.error_in(language) or "the evaluation failed"}
    return reply
