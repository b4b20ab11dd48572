"""A tuning and its workspace -> the steps of every method of `AgenticRL`, to be done blocking or awaited.

`client.agentic_rl` has the faces; nothing is sent here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from strop.client import deployments, functions, jobs, submission
from strop.client.tuning import AgenticRLFunctionComponent, Dataset, Tuning, checked, read_tuning
from strop.client.wire import Steps
from strop.errors import ConfigError, Problem
from strop.locales import msg
from strop.schema.function import FunctionInput, FunctionOutput, FunctionType
from strop.schema.job import JobStatus
from strop.schema.responses import (
    CheckpointInfo,
    DeploymentInfo,
    JobInfo,
    Listed,
    ModelInfo,
    Point,
    TrajectoryInfo,
)

T = TypeVar("T")

Component = AgenticRLFunctionComponent
RegisteredIds = tuple[list[str], list[str], list[str], list[str], list[str], list[str]]


class Training:
    """What `init` read and later calls changed."""

    def __init__(self) -> None:
        self.tuning = Tuning()
        self.workspace = Path()

    def init(self, config_path: str | Path | None, changes: Mapping[str, Any]) -> None:
        """Read a job file; `changes` replace its top-level keys. Without a file they are all there is.

        Raises:
            ConfigError: everything that is wrong with it, each with its line.
        """
        if config_path is not None:
            self.tuning, self.workspace = read_tuning(Path(config_path), changes)
        else:
            self.tuning = checked(Tuning, changes, subject="init")
            self.workspace = Path(self.tuning.workspace_dir)

    def register_functions(
        self, functions: Component | Sequence[Component] | None = None, lazy_load: bool = True
    ) -> Steps[RegisteredIds]:
        """Send the code of functions and register them; what the server has already is not sent again.

        Returns:
            The ids of rollout, reward and group reward functions, then those of their instances, which are
            there with `lazy_load` off.
        Side effects:
            Sets `entity_id` and `instance_id` of each component. Source folders are only read.
        """
        chosen = self.tuning.functions if functions is None else _several(functions)
        yield from submission.register(chosen, self.workspace, start=not lazy_load)
        kinds = (FunctionType.ROLLOUT, FunctionType.REWARD, FunctionType.GROUP_REWARD)
        entities = [[one.entity_id for one in chosen if one.type is kind and one.entity_id] for kind in kinds]
        instances = [
            [one.instance_id for one in chosen if one.type is kind and one.instance_id] for kind in kinds
        ]
        return entities[0], entities[1], entities[2], instances[0], instances[1], instances[2]

    def upload_datasets(
        self,
        datasets: Dataset | Sequence[Dataset] | None = None,
        training_files: str | Path | Sequence[str | Path] | None = None,
        validation_files: str | Path | Sequence[str | Path] | None = None,
    ) -> Steps[tuple[list[str], list[str]]]:
        """Send files of rows; those with a `file_id` are there already.

        Returns:
            The ids of training files, then of validation files.
        """
        chosen = _datasets(datasets, training_files, validation_files)
        if chosen:
            self.tuning.datasets = chosen
        yield from submission.upload(self.tuning.datasets, self.workspace)
        own = self.tuning.datasets
        return (
            [one.file_id for one in own if one.type == "training" and one.file_id],
            [one.file_id for one in own if one.type == "validation" and one.file_id],
        )

    def submit_job(
        self,
        model: str | None = None,
        datasets: Dataset | Sequence[Dataset] | None = None,
        functions: Component | Sequence[Component] | None = None,
        hyper_parameters: Mapping[str, Any] | None = None,
        resources: Mapping[str, Any] | None = None,
        job_name: str | None = None,
        teacher_model: str | None = None,
        tuned_model_name: str | None = None,
    ) -> Steps[JobInfo]:
        """Submit what is registered and uploaded.

        Raises:
            ConfigError: something is not. RequestError: everything that the server found wrong.
        """
        self._take(
            model=model,
            datasets=_several(datasets),
            functions=_several(functions),
            hyper_parameters=hyper_parameters,
            resources=resources,
            name=job_name,
            teacher_model=teacher_model,
            tuned_model_name=tuned_model_name,
        )
        return jobs.submit(submission.body(self.tuning))

    def run(
        self,
        model: str | None = None,
        training_datasets: Dataset | Sequence[Dataset] | None = None,
        validation_datasets: Dataset | Sequence[Dataset] | None = None,
        functions: Component | Sequence[Component] | None = None,
        hyper_parameters: Mapping[str, Any] | None = None,
        resources: Mapping[str, Any] | None = None,
        job_name: str | None = None,
        teacher_model: str | None = None,
        tuned_model_name: str | None = None,
    ) -> Steps[JobInfo]:
        """Check everything here, then register, upload and submit. What is given replaces what `init` read.

        Raises:
            ConfigError, DataError: what is wrong, before anything was sent. RequestError: the server refused.
        """
        self._take(
            model=model,
            datasets=[*_several(training_datasets), *_several(validation_datasets)],
            functions=_several(functions),
            hyper_parameters=hyper_parameters,
            resources=resources,
            name=job_name,
            teacher_model=teacher_model,
            tuned_model_name=tuned_model_name,
        )
        return submission.run(self.tuning, self.workspace)

    def test_functions(
        self,
        instance_id: str,
        type: FunctionType | str | None = None,
        input_data: Mapping[str, Any] | FunctionInput | None = None,
        *,
        functype: FunctionType | str | None = None,
    ) -> Steps[FunctionOutput]:
        """Call an instance once. A function's own id will do: an instance is then started and ended for it.

        Raises:
            ConfigError: the input is not of the function's kind. FunctionError: the call failed; says why.
        """
        if input_data is None:
            raise ConfigError("input", [Problem(place="input_data", message=msg("missing"))])
        kind = type or functype
        return functions.call(instance_id, input_data, func_type=kind and FunctionType(str(kind)))

    def query_all_function_instance_logs(
        self, function_instance_id: str, *, keywords: list[str] | None = None, last: int = 1000
    ) -> Steps[list[str]]:
        """The last lines that a function instance printed."""
        return functions.logs(function_instance_id, keywords=keywords, last=last)

    def delete_function_instance(self, function_instance_id: str) -> Steps[None]:
        """End a function instance."""
        return functions.stop(function_instance_id)

    def get(self, job_id: str) -> Steps[JobInfo]:
        """One job."""
        return jobs.get(job_id)

    def cancel(self, job_id: str) -> Steps[JobInfo]:
        """End a job; a running one saves a checkpoint first."""
        return jobs.cancel(job_id)

    def pause(self, job_id: str) -> Steps[JobInfo]:
        """Let a job rest; a running one saves a checkpoint first."""
        return jobs.pause(job_id)

    def resume(self, job_id: str) -> Steps[JobInfo]:
        """Let a paused job go on from its newest checkpoint."""
        return jobs.resume(job_id)

    def delete(self, job_id: str) -> Steps[None]:
        """Delete an ended job with its checkpoints; published models stay."""
        return jobs.delete(job_id)

    def logs(self, job_id: str, offset: int = 1, lines: int = 1000) -> Steps[list[str]]:
        """What a job's processes printed, from line `offset` on; line 1 is the first."""
        return jobs.logs(job_id, offset=offset, lines=lines)

    def wait(self, job_id: str, timeout_s: float | None = None) -> Steps[JobInfo]:
        """Wait until a job has ended, however it ended: look at its `status`."""
        return jobs.wait(job_id, timeout_s=timeout_s)

    def metrics(self, job_id: str, names: list[str] | None = None) -> Steps[dict[str, list[Point]]]:
        """The curves of a job by name, all of them unless some are named."""
        return jobs.metrics(job_id, names)

    def trajectories(
        self,
        job_id: str,
        step: int | None = None,
        split: str | None = None,
        status: str | None = None,
        limit: int | None = 50,
    ) -> Steps[list[TrajectoryInfo]]:
        """Rollouts of a job without their turns; `limit` None is all of them."""
        return jobs.trajectories(job_id, step=step, split=split, status=status, limit=limit)

    def checkpoints(self, job_id: str) -> Steps[list[CheckpointInfo]]:
        """Checkpoints of a job, in order of steps."""
        return jobs.checkpoints(job_id)

    def publish(self, job_id: str, model_name: str, checkpoint: str | int = "last") -> Steps[ModelInfo]:
        """Make a checkpoint (`last`, `best` by validation, a step or an id) a model with a name."""
        return jobs.publish(job_id, model_name, checkpoint=checkpoint)

    def deploy(self, model_name: str, capacity: int = 1, suffix: str | None = None) -> Steps[DeploymentInfo]:
        """Serve a model and wait until it answers."""
        made = yield from deployments.create(model_name, capacity=capacity, suffix=suffix)
        return (yield from deployments.wait(made.deployed_model))

    def list_(
        self, page_no: int = 1, page_size: int = 10, status: JobStatus | str | None = None
    ) -> Steps[Listed[JobInfo]]:
        """Jobs, newest first."""
        return jobs.list_(page_no=page_no, page_size=page_size, status=status)

    def _take(self, *, hyper_parameters: Any, resources: Any, **given: Any) -> None:
        """Replace what was given, all of it checked together."""
        changes = {key: value for key, value in given.items() if value not in (None, [])}
        training = self.tuning.training.model_dump()
        if hyper_parameters:
            training["hyper_parameters"] = dict(hyper_parameters)
        if resources:
            training["resources"] = dict(resources)
        own = {key: getattr(self.tuning, key) for key in self.tuning.model_fields_set}
        self.tuning = checked(Tuning, own | {"training": training} | changes, subject="job")


def _several(given: T | Sequence[T] | None) -> list[T]:
    """One, or several of them, or none."""
    if given is None:
        return []
    return [*given] if isinstance(given, Sequence) and not isinstance(given, str) else [given]  # pyright: ignore[reportUnknownVariableType, reportReturnType]


def _datasets(datasets: Any, training_files: Any, validation_files: Any) -> list[Dataset]:
    given: list[Dataset] = _several(datasets)
    given += [Dataset(type="training", file_name=str(path)) for path in _several(training_files)]
    given += [Dataset(type="validation", file_name=str(path)) for path in _several(validation_files)]
    return given
