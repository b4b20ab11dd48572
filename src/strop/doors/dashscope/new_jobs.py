"""A job as DashScope's clients ask for it -> a new job of the service. Nothing is looked up here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from strop.doors.dashscope.job_request import JobFunctionRequest, JobRequest, UploadedDataset
from strop.errors import Problem
from strop.locales import msg
from strop.schema.function import FunctionType
from strop.service.job_plan import JobFunction, NewJob, RowsFile


def new_job(request: JobRequest) -> NewJob:
    training, of_training = _rows(
        "training", request.training_datasets or (), request.training_file_ids or ()
    )
    validation, of_validation = _rows(
        "validation", request.validation_datasets or (), request.validation_file_ids or ()
    )
    return NewJob(
        model=request.model,
        training=training,
        validation=validation,
        functions=new_functions(request.rollout, request.rewards or ()),
        hyper_parameters=request.hyper_parameters or {},
        resources=request.resource_config or {},
        trackers=request.trackers,
        diagnosis=request.diagnosis,
        training_type=request.training_type,
        teacher_model=request.teacher_model,
        name=request.job_name,
        output_name=request.output_name,
        problems=[*of_training, *of_validation],
    )


def rows_of(place: str, datasets: Sequence[UploadedDataset]) -> tuple[list[RowsFile], list[Problem]]:
    """The files that datasets name; problems where one names something else."""
    found: list[RowsFile] = []
    problems: list[Problem] = []
    for index, dataset in enumerate(datasets):
        here = f"{place}[{index}]"
        if dataset.data_source_type != "file_id":
            what = f"data_source_type {dataset.data_source_type!r} is not read: this server fetches nothing"
            problems.append(
                Problem(place=here, message=what, fix=msg("upload the file and give its file_id"))
            )
        elif not dataset.file_id:
            problems.append(
                Problem(place=f"{here}.file_id", message=msg("missing"), fix=msg("upload the file first"))
            )
        else:
            found.append(RowsFile(place=f"{here}.file_id", file_id=dataset.file_id))
    return found, problems


def new_functions(
    rollout: JobFunctionRequest | None, rewards: Sequence[JobFunctionRequest]
) -> list[JobFunction]:
    functions = [_function("rollout", FunctionType.ROLLOUT, rollout)] if rollout else []
    return functions + [_function(f"rewards[{index}]", None, one) for index, one in enumerate(rewards)]


def _rows(
    kind: str, datasets: Sequence[UploadedDataset], file_ids: Sequence[str]
) -> tuple[list[RowsFile], list[Problem]]:
    """Clients give datasets, plain ids, or the same file both ways."""
    found, problems = rows_of(f"{kind}_datasets", datasets)
    known = {one.file_id for one in found}
    for index, file_id in enumerate(file_ids):
        if file_id not in known:
            found.append(RowsFile(place=f"{kind}_file_ids[{index}]", file_id=file_id))
    return found, problems


def _function(place: str, kind: FunctionType | None, request: JobFunctionRequest) -> JobFunction:
    return JobFunction(
        place=place,
        type=kind,
        entity_id=request.entity_id,
        name=request.name,
        preset=request.preset,
        params=request.params or {},
        layer_code=request.layer_code,
        settings=dict(_settings(request)),
        not_honoured=request.not_honoured(),
    )


def _settings(request: JobFunctionRequest) -> Iterator[tuple[str, Any]]:
    """How a function of a job runs and what it weighs, where the client said so."""
    yield "runtime", request.sizes() | ({"env": request.env_texts} if request.env else {})
    if request.timeout is not None:
        yield "timeout", request.timeout
    if request.weight is not None:
        yield "weight", request.weight
    if request.reward_metric_weight:
        yield "reward_metric_weight", request.reward_metric_weight
