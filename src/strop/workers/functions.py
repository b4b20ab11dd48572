"""Function configurations -> running workers, called by name: the flow's `FunctionRunner`."""

from __future__ import annotations

import asyncio
import difflib
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Self

import aiohttp

from strop.config.function import FunctionConfig, env_text
from strop.errors import FunctionError
from strop.locales import msg
from strop.schema.function import FunctionInput
from strop.schema.reply import FunctionReply
from strop.workers.call_spans import Sink
from strop.workers.gauges import Reading
from strop.workers.instance import Instance, new_client
from strop.workers.process import OnLine
from strop.workers.size import PoolSize, cut, limits_of
from strop.workers.spec import WorkerSpec

_FIRST_DELAY_S = 0.05
_MAX_DELAY_S = 2.0


class FunctionPool:
    """The functions of one job, each an instance with workers of its own.

    Concurrency:
        Belongs to the event loop that called `start`; that loop's thread has to live as long as the pool.
    """

    def __init__(
        self,
        functions: Sequence[FunctionConfig],
        *,
        root: Path,
        job_id: str,
        on_line: OnLine,
        grace_s: float = 2.0,
        start_limit_s: float = 600.0,
        pythons: Mapping[str, Path] = MappingProxyType({}),
        tracing: Mapping[str, str] = MappingProxyType({}),
        on_spans: Sink | None = None,
    ) -> None:
        """Resolve each function's `zipdir` against `root`; starts nothing.

        `pythons` are the interpreters of functions that have a layer, by label; `tracing` the environment by
        which the workers' spans find their way; `on_spans` takes those of functions that make none.

        Units:
            grace_s: seconds past a function's timeout until a worker that does not even say so is given up.
            start_limit_s: seconds that import and `setup` may take.
        """
        specs = [worker_spec(config, root, pythons.get(config.label)) for config in functions]
        self._specs = [replace(spec, tracing=tracing) for spec in specs]
        self._sizes = {config.label: PoolSize.of(config.runtime) for config in functions}
        self.notes = [
            msg("function {label!r}: ", label=config.label) + text
            for config in functions
            for text in cut(config.runtime)
        ]
        self._job_id = job_id
        self._on_line = on_line
        self._on_spans = on_spans
        self._grace_s = grace_s
        self._start_limit_s = start_limit_s
        self._client: aiohttp.ClientSession | None = None
        self._instances: dict[str, Instance] = {}

    async def start(self) -> None:
        """Start the first worker of each side by side; `capacity` is reached in the background.

        Raises:
            FunctionError: one or more could not start; all their texts. Nothing is left running.
        """
        self._client = new_client()
        self._instances = {spec.name: self._instance(spec, self._client) for spec in self._specs}
        started = (instance.start() for instance in self._instances.values())
        try:
            results = await asyncio.gather(*started, return_exceptions=True)
        except asyncio.CancelledError:
            await self.close()
            raise
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            await self.close()
            raise FunctionError("\n".join(str(failure) for failure in failures))

    async def call(self, name: str, payload: FunctionInput) -> FunctionReply:
        """Call the function of that name. What it did wrong is in the reply.

        A call that finds the queue full tries again, later each time.

        Raises:
            FunctionError: the pool has no such function.
        """
        instance = self._instances.get(name)
        if instance is None:
            near = difflib.get_close_matches(name, self._instances, n=1)
            known = ", ".join(self._instances) or "none"
            fix = f"did you mean {near[0]!r}?" if near else f"running: {known}"
            raise FunctionError(msg("no running function {name!r}", name=name), fix=fix)
        delay = _FIRST_DELAY_S
        while (reply := await instance.call(payload)).error_code == "busy" and not reply.attempts:
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, _MAX_DELAY_S)
        return reply

    def readings(self) -> dict[str, Reading]:
        """The state of each function's instance, by name."""
        return {name: instance.reading() for name, instance in self._instances.items()}

    async def close(self) -> None:
        """Kill every worker with all its descendants. Harmless when done twice."""
        instances, self._instances = self._instances, {}
        await asyncio.gather(*(instance.close() for instance in instances.values()))
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _instance(self, spec: WorkerSpec, client: aiohttp.ClientSession) -> Instance:
        return Instance(
            spec,
            job_id=self._job_id,
            client=client,
            on_line=self._on_line,
            grace_s=self._grace_s,
            start_limit_s=self._start_limit_s,
            size=self._sizes[spec.name],
            on_spans=self._on_spans,
        )


def worker_spec(config: FunctionConfig, root: Path, python: Path | None = None) -> WorkerSpec:
    """A job's function -> what its worker has to know."""
    return WorkerSpec(
        name=config.label,
        classpath=config.fcmodel.classpath,
        root=(root / config.fcmodel.zipdir).resolve(),
        func_type=config.type,
        timeout_s=config.timeout,
        concurrency=config.runtime.concurrency,
        params={"preset": config.preset, "params": config.params} if config.preset is not None else {},
        metric_weights=config.reward_metric_weight,
        env={key: env_text(value) for key, value in config.runtime.env.items()},
        python=python,
        limits=limits_of(config.runtime),
    )
