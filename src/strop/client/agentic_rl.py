"""`AgenticRL`: the whole way from functions and rows to a served model, under the source documents' names.

There, `run`, `register_functions`, `upload_datasets` and `test_functions` are awaited, others plain calls;
so it is with `AgenticRL`. `BlockingAgenticRL` has all of them as plain calls, in `AsyncAgenticRL` all of them
are awaited. Every method may be called on the class: it then works with what the environment says.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from strop.client.client import AsyncClient, Client
from strop.client.place import find_place
from strop.client.training import Training
from strop.client.tuning import Tuning
from strop.client.wire import Steps
from strop.schema.responses import StreamItem

P = ParamSpec("P")
T = TypeVar("T")


class _Face:
    """A training, set up by `init` or by arguments, and the jobs of its server."""

    def __init__(self, api_key: str | None = None, *, base_url: str | None = None) -> None:
        """
        Raises:
            StropError: no server or no key is known; nothing has been sent.
        """
        place = find_place(base_url, api_key)
        self._base_url, self._api_key = place.url, place.api_key
        self.training = Training()

    @property
    def tuning(self) -> Tuning:
        return self.training.tuning

    @tuning.setter
    def tuning(self, tuning: Tuning) -> None:
        self.training.tuning = tuning

    @property
    def workspace(self) -> Path:
        """The folder that relative paths start from."""
        return self.training.workspace

    @workspace.setter
    def workspace(self, folder: Path) -> None:
        self.training.workspace = folder

    def init(self, config_path: str | Path | None = None, **changes: Any) -> Self:
        """Read a job file; `changes` replace its top-level keys. Without a file they are all there is.

        Raises:
            ConfigError: everything that is wrong with it, each with its line.
        """
        self.training.init(config_path, changes)
        return self

    def client(self) -> Client:
        """All routes of the same server, for plain calls."""
        return Client(self._base_url, self._api_key)

    def async_client(self) -> AsyncClient:
        """All routes of the same server, to be awaited."""
        return AsyncClient(self._base_url, self._api_key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._base_url!r})"


class _blocking(Generic[P, T]):
    """A plain call, made of its steps."""

    def __init__(self, steps: Callable[Concatenate[Training, P], Steps[T]]) -> None:
        self.steps = steps
        self.__doc__ = steps.__doc__

    def __get__(self, instance: _Face | None, owner: type[_Face]) -> Callable[P, T]:
        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            face = owner() if instance is None else instance
            with face.client() as client:
                return client.run(self.steps(face.training, *args, **kwargs))

        return _like(method, self.steps)


class _awaited(Generic[P, T]):
    """The same, to be awaited."""

    def __init__(self, steps: Callable[Concatenate[Training, P], Steps[T]]) -> None:
        self.steps = steps
        self.__doc__ = steps.__doc__

    def __get__(self, instance: _Face | None, owner: type[_Face]) -> Callable[P, Coroutine[Any, Any, T]]:
        async def method(*args: P.args, **kwargs: P.kwargs) -> T:
            face = owner() if instance is None else instance
            async with face.async_client() as client:
                return await client.run(self.steps(face.training, *args, **kwargs))

        return _like(method, self.steps)


class _either(Generic[P, T]):
    """A method that the class has, too."""

    def __init__(self, method: Callable[Concatenate[_Face, P], T]) -> None:
        self.steps = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: _Face | None, owner: type[_Face]) -> Callable[P, T]:
        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.steps(owner() if instance is None else instance, *args, **kwargs)

        return _like(method, self.steps)


def _stream(face: _Face, job_id: str) -> Generator[StreamItem]:
    """Statuses, events and metrics as they come, from the job's beginning to its end."""
    with face.client() as client:
        yield from client.jobs.stream(job_id)


async def _stream_awaited(face: _Face, job_id: str) -> AsyncGenerator[StreamItem]:
    """Statuses, events and metrics as they come, from the job's beginning to its end."""
    async with face.async_client() as client, aclosing(client.jobs.stream(job_id)) as items:
        async for item in items:
            yield item


class _PlainCalls(_Face):
    """What `AgenticRL` answers at once, as `BlockingAgenticRL` does."""

    submit_job = _blocking(Training.submit_job)
    query_all_function_instance_logs = _blocking(Training.query_all_function_instance_logs)
    delete_function_instance = _blocking(Training.delete_function_instance)
    get = _blocking(Training.get)
    list = _blocking(Training.list_)
    cancel = _blocking(Training.cancel)
    pause = _blocking(Training.pause)
    resume = _blocking(Training.resume)
    delete = _blocking(Training.delete)
    logs = _blocking(Training.logs)
    wait = _blocking(Training.wait)
    metrics = _blocking(Training.metrics)
    trajectories = _blocking(Training.trajectories)
    checkpoints = _blocking(Training.checkpoints)
    publish = _blocking(Training.publish)
    deploy = _blocking(Training.deploy)
    stream = _either(_stream)


class AgenticRL(_PlainCalls):
    """A training and the jobs of its server, awaited where the source documents await.

    >>> import asyncio
    >>> job = asyncio.run(AgenticRL().init("job.yaml").run())  # doctest: +SKIP
    >>> AgenticRL.wait(job.job_id).status  # doctest: +SKIP
    <JobStatus.SUCCEEDED: 'SUCCEEDED'>
    """

    register_functions = _awaited(Training.register_functions)
    upload_datasets = _awaited(Training.upload_datasets)
    run = _awaited(Training.run)
    test_functions = _awaited(Training.test_functions)


class BlockingAgenticRL(_PlainCalls):
    """`AgenticRL` in plain calls.

    >>> job = BlockingAgenticRL().init("job.yaml").run()  # doctest: +SKIP
    """

    register_functions = _blocking(Training.register_functions)
    upload_datasets = _blocking(Training.upload_datasets)
    run = _blocking(Training.run)
    test_functions = _blocking(Training.test_functions)


class AsyncAgenticRL(_Face):
    """`AgenticRL`, every method to be awaited."""

    register_functions = _awaited(Training.register_functions)
    upload_datasets = _awaited(Training.upload_datasets)
    submit_job = _awaited(Training.submit_job)
    run = _awaited(Training.run)
    test_functions = _awaited(Training.test_functions)
    query_all_function_instance_logs = _awaited(Training.query_all_function_instance_logs)
    delete_function_instance = _awaited(Training.delete_function_instance)
    get = _awaited(Training.get)
    list = _awaited(Training.list_)
    cancel = _awaited(Training.cancel)
    pause = _awaited(Training.pause)
    resume = _awaited(Training.resume)
    delete = _awaited(Training.delete)
    logs = _awaited(Training.logs)
    wait = _awaited(Training.wait)
    metrics = _awaited(Training.metrics)
    trajectories = _awaited(Training.trajectories)
    checkpoints = _awaited(Training.checkpoints)
    publish = _awaited(Training.publish)
    deploy = _awaited(Training.deploy)
    stream = _either(_stream_awaited)


def _like(method: Any, steps: Callable[..., Any]) -> Any:
    """With the name, the words and the arguments of the steps, but for the training that they are given."""
    method.__name__ = steps.__name__.strip("_").removesuffix("_awaited")
    method.__doc__ = steps.__doc__
    method.__wrapped__ = partial(steps, None)
    return method
