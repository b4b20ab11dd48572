"""`AgenticRL`: the whole way from functions and rows to a served model, under the source documents' names.

`run`, `register_functions`, `upload_datasets` and `test_functions` are awaited as there, the others are plain
calls; `Client` and `AsyncClient` are all of one kind. Every method may be called on the class, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from strop.client import deployments, functions, jobs, submission
from strop.client.client import AsyncClient, Client
from strop.client.place import find_place
from strop.client.tuning import AgenticRLFunctionComponent, Dataset, Tuning, checked, read_tuning
from strop.client.wire import Steps
from strop.errors import ConfigError, Problem
from strop.schema.function import FunctionInput, FunctionOutput, FunctionType
from strop.schema.job import JobStatus
from strop.schema.shown import (
    CheckpointInfo,
    DeploymentInfo,
    JobInfo,
    Listed,
    ModelInfo,
    Point,
    StreamItem,
    TrajectoryInfo,
)

P = ParamSpec("P")
T = TypeVar("T")

Ids = list[str]
Lines = list[str]
Component = AgenticRLFunctionComponent
Curves = dict[str, list[Point]]
Trajectories = list[TrajectoryInfo]
Checkpoints = list[CheckpointInfo]


class _Either(Generic[P, T]):
    """A method that the class has, too: it then works with what the environment says."""

    def __init__(self, method: Callable[Concatenate[AgenticRL, P], T]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: AgenticRL | None, owner: type[AgenticRL]) -> Callable[P, T]:
        return partial(self._method, owner() if instance is None else instance)


class AgenticRL:
    """A training, set up by `init` or by arguments, and the jobs of its server.

    >>> import asyncio
    >>> job = asyncio.run(AgenticRL().init("job.yaml").run())  # doctest: +SKIP
    >>> AgenticRL.wait(job.job_id).status  # doctest: +SKIP
    <JobStatus.SUCCEEDED: 'SUCCEEDED'>
    """

    def __init__(self, api_key: str | None = None, *, base_url: str | None = None) -> None:
        """
        Raises:
            StropError: no server or no key is known; nothing has been sent.
        """
        place = find_place(base_url, api_key)
        self._base_url, self._api_key = place.url, place.api_key
        self.tuning = Tuning()
        self.workspace = Path()

    def init(self, config_path: str | Path | None = None, **changes: Any) -> Self:
        """Read a job file; `changes` replace its top-level keys. Without a file they are all there is.

        Raises:
            ConfigError: everything that is wrong with it, each with its line.
        """
        if config_path is not None:
            self.tuning, self.workspace = read_tuning(Path(config_path), changes)
        else:
            self.tuning = checked(Tuning, changes, subject="init")
            self.workspace = Path(self.tuning.workspace_dir)
        return self

    async def register_functions(
        self, functions: Component | Sequence[Component] | None = None, lazy_load: bool = True
    ) -> tuple[Ids, Ids, Ids, Ids, Ids, Ids]:
        """Send the code of functions and register them; what the server has already is not sent again.

        Returns:
            The ids of rollout, reward and group reward functions, then those of their instances, which are
            there with `lazy_load` off.
        Side effects:
            Sets `entity_id` and `instance_id` of each component. Source folders are only read.
        """
        chosen = self.tuning.functions if functions is None else _several(functions)
        await self._awaited(submission.register(chosen, self.workspace, start=not lazy_load))
        kinds = (FunctionType.ROLLOUT, FunctionType.REWARD, FunctionType.GROUP_REWARD)
        entities = [[one.entity_id for one in chosen if one.type is kind and one.entity_id] for kind in kinds]
        instances = [
            [one.instance_id for one in chosen if one.type is kind and one.instance_id] for kind in kinds
        ]
        return entities[0], entities[1], entities[2], instances[0], instances[1], instances[2]

    async def upload_datasets(
        self,
        datasets: Dataset | Sequence[Dataset] | None = None,
        training_files: str | Path | Sequence[str | Path] | None = None,
        validation_files: str | Path | Sequence[str | Path] | None = None,
    ) -> tuple[Ids, Ids]:
        """Send files of rows; those with a `file_id` are there already.

        Returns:
            The ids of training files, then of validation files.
        """
        chosen = _datasets(datasets, training_files, validation_files)
        if chosen:
            self.tuning.datasets = chosen
        await self._awaited(submission.upload(self.tuning.datasets, self.workspace))
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
    ) -> JobInfo:
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
        return self._blocking(jobs.submit(submission.body(self.tuning)))

    async def run(
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
    ) -> JobInfo:
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
        return await self._awaited(submission.run(self.tuning, self.workspace))

    @_Either
    async def test_functions(
        self,
        instance_id: str,
        type: FunctionType | str | None = None,
        input_data: Mapping[str, Any] | FunctionInput | None = None,
        *,
        functype: FunctionType | str | None = None,
    ) -> FunctionOutput:
        """Call an instance once. A function's own id will do: an instance is then started and ended for it.

        Raises:
            ConfigError: the input is none of the function's kind. FunctionError: the call failed; says why.
        """
        if input_data is None:
            raise ConfigError("input", [Problem(place="input_data", message="missing")])
        kind = type or functype
        return await self._awaited(
            functions.call(instance_id, input_data, func_type=kind and FunctionType(str(kind)))
        )

    @_Either
    def query_all_function_instance_logs(
        self, function_instance_id: str, *, keywords: Lines | None = None, last: int = 1000
    ) -> Lines:
        """The last lines that a function instance printed."""
        return self._blocking(functions.logs(function_instance_id, keywords=keywords, last=last))

    @_Either
    def delete_function_instance(self, function_instance_id: str) -> None:
        """End a function instance."""
        self._blocking(functions.stop(function_instance_id))

    @_Either
    def get(self, job_id: str) -> JobInfo:
        """One job."""
        return self._blocking(jobs.get(job_id))

    @_Either
    def cancel(self, job_id: str) -> JobInfo:
        """End a job; a running one saves a checkpoint first."""
        return self._blocking(jobs.cancel(job_id))

    @_Either
    def pause(self, job_id: str) -> JobInfo:
        """Let a job rest; a running one saves a checkpoint first."""
        return self._blocking(jobs.pause(job_id))

    @_Either
    def resume(self, job_id: str) -> JobInfo:
        """Let a paused job go on from its newest checkpoint."""
        return self._blocking(jobs.resume(job_id))

    @_Either
    def delete(self, job_id: str) -> None:
        """Delete an ended job with its checkpoints; published models stay."""
        self._blocking(jobs.delete(job_id))

    @_Either
    def logs(self, job_id: str, offset: int = 1, lines: int = 1000) -> Lines:
        """What a job's processes printed, from line `offset` on; line 1 is the first."""
        return self._blocking(jobs.logs(job_id, offset=offset, lines=lines))

    @_Either
    def wait(self, job_id: str, timeout_s: float | None = None) -> JobInfo:
        """Wait until a job has ended, however it ended: look at its `status`."""
        return self._blocking(jobs.wait(job_id, timeout_s=timeout_s))

    @_Either
    def stream(self, job_id: str) -> Iterator[StreamItem]:
        """Statuses, events and metrics as they come, from the job's beginning to its end."""
        with Client(self._base_url, self._api_key) as client:
            yield from client.jobs.stream(job_id)

    @_Either
    def metrics(self, job_id: str, names: Lines | None = None) -> Curves:
        """The curves of a job by name, all of them unless some are named."""
        return self._blocking(jobs.metrics(job_id, names))

    @_Either
    def trajectories(
        self,
        job_id: str,
        step: int | None = None,
        split: str | None = None,
        status: str | None = None,
        limit: int | None = 50,
    ) -> Trajectories:
        """Rollouts of a job without their turns; `limit` None is all of them."""
        return self._blocking(jobs.trajectories(job_id, step=step, split=split, status=status, limit=limit))

    @_Either
    def checkpoints(self, job_id: str) -> Checkpoints:
        """Checkpoints of a job, in order of steps."""
        return self._blocking(jobs.checkpoints(job_id))

    @_Either
    def publish(self, job_id: str, model_name: str, checkpoint: str | int = "last") -> ModelInfo:
        """Make a checkpoint (`last`, `best` by validation, a step or an id) a model with a name."""
        return self._blocking(jobs.publish(job_id, model_name, checkpoint=checkpoint))

    @_Either
    def deploy(self, model_name: str, capacity: int = 1, suffix: str | None = None) -> DeploymentInfo:
        """Serve a model and wait until it answers."""
        made = self._blocking(deployments.create(model_name, capacity=capacity, suffix=suffix))
        return self._blocking(deployments.wait(made.deployed_model))

    @_Either
    def list(
        self, page_no: int = 1, page_size: int = 10, status: JobStatus | str | None = None
    ) -> Listed[JobInfo]:
        """Jobs, newest first."""
        return self._blocking(jobs.list_(page_no=page_no, page_size=page_size, status=status))

    def __repr__(self) -> str:
        return f"AgenticRL({self._base_url!r})"

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

    def _blocking(self, steps: Steps[T]) -> T:
        with Client(self._base_url, self._api_key) as client:
            return client.run(steps)

    async def _awaited(self, steps: Steps[T]) -> T:
        async with AsyncClient(self._base_url, self._api_key) as client:
            return await client.run(steps)


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
