"""The typed client of the control plane: one group of methods a noun, blocking (`Client`) or awaited
(`AsyncClient`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Generator
from types import TracebackType
from typing import Self, TypeVar

from strop.client import deployments, evaluations, files, functions, jobs, models
from strop.client.drive import AsyncDriver, Driver, awaited, blocking
from strop.client.wire import Steps
from strop.schema.responses import StreamItem

T = TypeVar("T")


class _Group:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def _run(self, steps: Steps[T], /) -> T:
        return self._driver(steps)


class Files(_Group):
    upload = blocking(files.upload)
    list = blocking(files.list_)
    get = blocking(files.get)
    delete = blocking(files.delete)


class Functions(_Group):
    register = blocking(functions.register)
    list = blocking(functions.list_)
    get = blocking(functions.get)
    delete = blocking(functions.delete)
    make_layer = blocking(functions.make_layer)
    start = blocking(functions.start)
    instance = blocking(functions.instance)
    stop = blocking(functions.stop)
    restart = blocking(functions.restart)
    logs = blocking(functions.logs)
    call = blocking(functions.call)


class Jobs(_Group):
    submit = blocking(jobs.submit)
    get = blocking(jobs.get)
    list = blocking(jobs.list_)
    cancel = blocking(jobs.cancel)
    pause = blocking(jobs.pause)
    resume = blocking(jobs.resume)
    delete = blocking(jobs.delete)
    wait = blocking(jobs.wait)
    logs = blocking(jobs.logs)
    tail = blocking(jobs.tail)
    events = blocking(jobs.events)
    metrics = blocking(jobs.metrics)
    trajectories = blocking(jobs.trajectories)
    trajectory = blocking(jobs.trajectory)
    spans = blocking(jobs.spans)
    span_tree = blocking(jobs.span_tree)
    diagnosis = blocking(jobs.diagnosis)
    checkpoints = blocking(jobs.checkpoints)
    publish = blocking(jobs.publish)

    def stream(self, job_id: str, *, progress: bool = False) -> Generator[StreamItem]:
        """Statuses, events and metrics as they come, from the job's beginning to its end; with `progress`
        also checkpoints and how far each phase is. Reconnects by itself.
        """
        return self._driver.stream(jobs.stream_path(job_id, progress=progress))


class Evaluations(_Group):
    create = blocking(evaluations.create)
    run = blocking(evaluations.run)
    get = blocking(evaluations.get)
    list = blocking(evaluations.list_)
    cancel = blocking(evaluations.cancel)
    delete = blocking(evaluations.delete)
    wait = blocking(evaluations.wait)


class Models(_Group):
    list = blocking(models.list_)
    get = blocking(models.get)
    delete = blocking(models.delete)


class Deployments(_Group):
    create = blocking(deployments.create)
    get = blocking(deployments.get)
    list = blocking(deployments.list_)
    wait = blocking(deployments.wait)
    scale = blocking(deployments.scale)
    limit = blocking(deployments.limit)
    delete = blocking(deployments.delete)


class Client:
    """Opens a server: `base_url` or STROP_URL or the one that runs here, with `api_key` or STROP_API_KEY or
    its first.

    Raises:
        StropError: no server or no key is known; nothing has been sent.
    Concurrency:
        May be used from several threads.
    """

    def __init__(self, base_url: str | None = None, api_key: str | None = None) -> None:
        self._driver = Driver(base_url, api_key)
        self.files = Files(self._driver)
        self.functions = Functions(self._driver)
        self.jobs = Jobs(self._driver)
        self.evaluations = Evaluations(self._driver)
        self.models = Models(self._driver)
        self.deployments = Deployments(self._driver)

    @property
    def url(self) -> str:
        return self._driver.place.url

    def run(self, steps: Steps[T]) -> T:
        """Do steps that were put together of others."""
        return self._driver(steps)

    def close(self) -> None:
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


class _AsyncGroup:
    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver

    def _run(self, steps: Steps[T], /) -> Awaitable[T]:
        return self._driver(steps)


class AsyncFiles(_AsyncGroup):
    upload = awaited(files.upload)
    list = awaited(files.list_)
    get = awaited(files.get)
    delete = awaited(files.delete)


class AsyncFunctions(_AsyncGroup):
    register = awaited(functions.register)
    list = awaited(functions.list_)
    get = awaited(functions.get)
    delete = awaited(functions.delete)
    make_layer = awaited(functions.make_layer)
    start = awaited(functions.start)
    instance = awaited(functions.instance)
    stop = awaited(functions.stop)
    restart = awaited(functions.restart)
    logs = awaited(functions.logs)
    call = awaited(functions.call)


class AsyncJobs(_AsyncGroup):
    submit = awaited(jobs.submit)
    get = awaited(jobs.get)
    list = awaited(jobs.list_)
    cancel = awaited(jobs.cancel)
    pause = awaited(jobs.pause)
    resume = awaited(jobs.resume)
    delete = awaited(jobs.delete)
    wait = awaited(jobs.wait)
    logs = awaited(jobs.logs)
    tail = awaited(jobs.tail)
    events = awaited(jobs.events)
    metrics = awaited(jobs.metrics)
    trajectories = awaited(jobs.trajectories)
    trajectory = awaited(jobs.trajectory)
    spans = awaited(jobs.spans)
    span_tree = awaited(jobs.span_tree)
    diagnosis = awaited(jobs.diagnosis)
    checkpoints = awaited(jobs.checkpoints)
    publish = awaited(jobs.publish)

    def stream(self, job_id: str, *, progress: bool = False) -> AsyncGenerator[StreamItem]:
        """Statuses, events and metrics as they come, from the job's beginning to its end; with `progress`
        also checkpoints and how far each phase is. Reconnects by itself.
        """
        return self._driver.stream(jobs.stream_path(job_id, progress=progress))


class AsyncEvaluations(_AsyncGroup):
    create = awaited(evaluations.create)
    run = awaited(evaluations.run)
    get = awaited(evaluations.get)
    list = awaited(evaluations.list_)
    cancel = awaited(evaluations.cancel)
    delete = awaited(evaluations.delete)
    wait = awaited(evaluations.wait)


class AsyncModels(_AsyncGroup):
    list = awaited(models.list_)
    get = awaited(models.get)
    delete = awaited(models.delete)


class AsyncDeployments(_AsyncGroup):
    create = awaited(deployments.create)
    get = awaited(deployments.get)
    list = awaited(deployments.list_)
    wait = awaited(deployments.wait)
    scale = awaited(deployments.scale)
    limit = awaited(deployments.limit)
    delete = awaited(deployments.delete)


class AsyncClient:
    """`Client`, to be awaited.

    Raises:
        StropError: no server or no key is known; nothing has been sent.
    Concurrency:
        Belongs to one event loop.
    """

    def __init__(self, base_url: str | None = None, api_key: str | None = None) -> None:
        self._driver = AsyncDriver(base_url, api_key)
        self.files = AsyncFiles(self._driver)
        self.functions = AsyncFunctions(self._driver)
        self.jobs = AsyncJobs(self._driver)
        self.evaluations = AsyncEvaluations(self._driver)
        self.models = AsyncModels(self._driver)
        self.deployments = AsyncDeployments(self._driver)

    @property
    def url(self) -> str:
        return self._driver.place.url

    async def run(self, steps: Steps[T]) -> T:
        """Do steps that were put together of others."""
        return await self._driver(steps)

    async def close(self) -> None:
        await self._driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"
