"""A tuning -> a submitted job: everything checked here first, then code, rows and the job itself are sent.

What the server has already is not sent again, so that a run that failed half-way can simply be repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strop.client import files, functions, jobs
from strop.client.tuning import AgenticRLFunctionComponent, Dataset, Tuning
from strop.client.wire import Steps, without_empty
from strop.config.aliases import ELSEWHERE
from strop.config.file import JobFile, read_scalar
from strop.config.loading import check_job
from strop.data.reading import RowFiles
from strop.errors import ConfigError, DataError, Problem
from strop.locales import msg
from strop.schema.function import FunctionType
from strop.schema.responses import FileInfo, JobInfo
from strop.schema.training import TrainingType

Say = Callable[[str], None]

_ID_OF = {
    FunctionType.ROLLOUT: "rollout_id",
    FunctionType.REWARD: "reward_id",
    FunctionType.GROUP_REWARD: "group_reward_id",
}
_SAMPLED = (None, "reinforcement", "pg_opd")
"""Trainings whose rows end with a question; those of the others are checked by the server."""


def run(tuning: Tuning, workspace: Path, say: Say | None = None) -> Steps[JobInfo]:
    """Check everything, register functions, upload rows, submit.

    Raises:
        ConfigError, DataError: what is wrong, before anything was sent. StropError: the server refused.
    """
    check(tuning, workspace)
    prepared = functions.prepare([one for one in tuning.functions if one.needs_code], workspace)
    for one in prepared:
        yield from functions.send(one, say)
    yield from upload(tuning.datasets, workspace, say)
    return (yield from jobs.submit(body(tuning)))


def register(
    components: list[AgenticRLFunctionComponent], workspace: Path, say: Say | None = None, *, start: bool
) -> Steps[None]:
    """Register what is not registered yet; with `start`, also bring an instance of each online."""
    for one in functions.prepare([one for one in components if one.needs_code], workspace):
        yield from functions.send(one, say)
    for component in components:
        if start and component.instance_id is None and component.entity_id is not None:
            started = yield from functions.start(component.entity_id, component.runtime)
            component.instance_id = started.instance_id


def upload(datasets: list[Dataset], workspace: Path, say: Say | None = None) -> Steps[None]:
    """Send the files that have no `file_id` yet, and set it; equal contents that are there are taken."""
    waiting = [one for one in datasets if one.file_id is None]
    if not waiting:
        return
    known = yield from _known_files()
    for dataset in waiting:
        path = local_path(dataset, workspace)
        files.check_file(path)
        digest = _sha256(path)
        file = known.get((digest, path.name))
        if file is None:
            file = yield from files.upload(path)
            if say is not None:
                say(f"{path.name}: {file.file_id}, {file.size} bytes")
        known[digest, path.name] = file
        dataset.file_id = file.file_id


def check(tuning: Tuning, workspace: Path) -> None:
    """What can be told without the server, all of it at once.

    Raises:
        ConfigError: keys, values, paths. DataError: rows.
    """
    problems: list[Problem] = []
    if not tuning.model:
        problems.append(
            Problem(place="model", message=msg("missing"), fix=msg("name what to train, e.g. smollm2-135m"))
        )
    if not any(one.type == "training" for one in tuning.datasets):
        problems.append(
            Problem(place="datasets", message=msg("there is no dataset of type training"), fix=msg("add one"))
        )
    if problems:
        raise ConfigError("job", problems)
    local = [one for one in tuning.datasets if one.file_id is None]
    rows = RowFiles()
    for dataset in local:
        files.check_file(local_path(dataset, workspace))
    # With parts that only the server knows, the server checks the whole.
    if len(local) == len(tuning.datasets) and all(one.entity_id is None for one in tuning.functions):
        check_job(_as_job_file(tuning, workspace), rows=rows)
    if tuning.training.type in _SAMPLED and tuning.mode in _SAMPLED:
        _check_rows(local, workspace, rows)


def body(tuning: Tuning) -> dict[str, Any]:
    """The job as the wire has it.

    Raises:
        ConfigError: a function that is not registered, a dataset that is not uploaded.
    """
    problems = [
        Problem(place=f"functions: {one.label}", message=msg("not registered"), fix=msg("register it first"))
        for one in tuning.functions
        if one.needs_code
    ]
    problems += [
        Problem(place=f"datasets: {one.file_name}", message=msg("not uploaded"), fix=msg("upload it first"))
        for one in tuning.datasets
        if one.file_id is None
    ]
    if problems:
        raise ConfigError("job", problems)
    rewards = [_function(one) for one in tuning.functions if one.type is not FunctionType.ROLLOUT]
    rollout = next((_function(one) for one in tuning.functions if one.type is FunctionType.ROLLOUT), None)
    teacher = tuning.teacher_model or tuning.training.teacher_model
    return without_empty(
        {
            "model": tuning.model,
            "job_name": tuning.name,
            "training_datasets": [_dataset(one) for one in tuning.datasets if one.type == "training"],
            "validation_datasets": [_dataset(one) for one in tuning.datasets if one.type == "validation"],
            "rollout": rollout,
            "rewards": rewards,
            "hyper_parameters": tuning.training.hyper_parameters,
            "resource_config": tuning.training.resources,
            "training_type": tuning.training.type
            or tuning.mode
            or ("pg_opd" if teacher else "reinforcement"),
            "teacher_model": teacher,
            "tuned_model_name": tuning.tuned_model_name,
            "trackers": tuning.trackers,
            "diagnosis": tuning.diagnosis,
        }
    )


def local_path(dataset: Dataset, workspace: Path) -> Path:
    return workspace / Path(dataset.file_name or "").expanduser()


def _dataset(dataset: Dataset) -> dict[str, Any]:
    name = Path(dataset.file_name).name if dataset.file_name else None
    return without_empty(
        {
            "type": dataset.type,
            "data_source_type": dataset.data_source_type.value,
            "file_id": dataset.file_id,
            "file_name": name,
        }
    )


def _function(component: AgenticRLFunctionComponent) -> dict[str, Any]:
    own = {
        _ID_OF[component.type]: component.entity_id,
        "name": component.label,
        "weight": component.weight,
        "timeout": component.timeout,
        "reward_metric_weight": component.reward_metric_weight,
        "preset": component.preset,
        "params": component.params,
    }
    return without_empty(own) | component.runtime.asked()


def _known_files() -> Steps[dict[tuple[str, str], FileInfo]]:
    """By hash and name: the newest hundred are enough to find what was sent just now."""
    newest = yield from files.list_(page_size=files.PAGE)
    return {(one.sha256, one.name): one for one in reversed(newest.items)}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_rows(datasets: list[Dataset], workspace: Path, rows: RowFiles) -> None:
    """Lengths are the server's matter: they need the model's tokenizer."""
    form = TrainingType.REINFORCEMENT
    problems = [one for dataset in datasets for one in rows.problems(_row_file(dataset, workspace), form)]
    if problems:
        raise DataError("rows", problems)


def _row_file(dataset: Dataset, workspace: Path) -> Path:
    """As the job file names it, so that it is read once."""
    return local_path(dataset, workspace).resolve()


def _as_job_file(tuning: Tuning, workspace: Path) -> JobFile:
    """The job in the form of `job.yaml`, without what only a cloud has."""
    hyper = {
        key: read_scalar(value) if isinstance(value, str) else value
        for key, value in tuning.training.hyper_parameters.items()
        if key not in ELSEWHERE and value is not None
    }
    training: dict[str, Any] = without_empty(
        {"type": tuning.training.type or tuning.mode, "hyper_parameters": hyper}
    )
    data: dict[str, Any] = {
        "name": tuning.name,
        "model": {"name": tuning.model},
        "workspace_dir": str(workspace.resolve()),
        "datasets": [
            {"type": one.type, "file_name": str(_row_file(one, workspace))} for one in tuning.datasets
        ],
        "functions": [_local_function(one) for one in tuning.functions],
        "training": training,
    }
    if tuning.tuned_model_name is not None:
        data["tuned_model_name"] = tuning.tuned_model_name
    if tuning.diagnosis:
        data["diagnosis"] = tuning.diagnosis  # trackers are the server's to check: it has to have them
    teacher = tuning.teacher_model or tuning.training.teacher_model
    if teacher is not None:
        training |= {"type": "pg_opd", "teacher_model": teacher}
    return JobFile(path=Path("job"), data=data, places={(): ""})


def _local_function(component: AgenticRLFunctionComponent) -> dict[str, Any]:
    runtime = component.runtime.sizes() | {"env": component.runtime.env_texts}
    function = without_empty(
        {
            "type": component.type.value,
            "name": component.label,
            "timeout": component.timeout,
            "weight": component.weight,
            "reward_metric_weight": component.reward_metric_weight,
            "preset": component.preset,
            "params": component.params,
            "runtime": without_empty(runtime),
        }
    )
    if component.preset is not None:
        return function
    file, name = component.fcmodel.target()
    return function | {"fcmodel": {"classpath": f"{file}:{name}", "zipdir": component.fcmodel.zipdir}}
