"""Entities -> running instances: pools of workers in processes of their own, started when first needed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import aiohttp
from pydantic import ValidationError

from strop.config.function import RuntimeRequest
from strop.errors import FunctionError, RequestError, ThrottledError
from strop.functions import validation_text
from strop.locales import msg
from strop.schema.entity import Entity, FunctionInstance, InstanceStatus
from strop.schema.function import INPUT_OF, FunctionInput, FunctionType
from strop.schema.reply import FunctionReply
from strop.service.bundles import unpack
from strop.service.layers import LayerBuilder
from strop.service.settings import Settings
from strop.store.blobs import Blobs
from strop.store.database import Database
from strop.store.entities import get_entity, get_instance, record_instance
from strop.store.logs import record_instance_lines
from strop.store.writer import Writer
from strop.workers.gauges import Reading
from strop.workers.instance import Instance, new_client
from strop.workers.size import PoolSize, limits_of
from strop.workers.spec import WorkerSpec

MAX_RUNNING = 64
"""Instances at once on one server."""

_TIMEOUT_S = 600.0
_GRACE_S = 2.0
_START_LIMIT_S = 300.0


@dataclass(slots=True)
class _Running:
    """An instance's workers, or the start that everybody waits for."""

    starting: asyncio.Task[Instance]
    entity: Entity


class Instances:
    """The running instances of this server.

    Concurrency:
        Belongs to the event loop that opened it.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        blobs: Blobs,
        layers: LayerBuilder,
        client: aiohttp.ClientSession,
    ) -> None:
        self._settings = settings
        self._database = database
        self._blobs = blobs
        self._layers = layers
        self._client = client
        self._writer = Writer(database, name="instance logs")
        self._running: dict[str, _Running] = {}

    async def start(self, instance: FunctionInstance) -> FunctionInstance:
        """Start its worker and wait until it serves. Returns the record as it is then.

        Raises:
            FunctionError: it does not start; the record says so, too.
        """
        try:
            await self._worker(instance)
        except FunctionError as error:
            await asyncio.to_thread(self._note, instance, InstanceStatus.FAILED, str(error))
            raise
        return await asyncio.to_thread(self._note, instance, InstanceStatus.ACTIVE, None)

    async def call(self, instance: FunctionInstance, body: bytes) -> tuple[FunctionType, FunctionReply]:
        """One call as JSON; a worker is started where there is none, as after the server's restart.

        Raises:
            RequestError: the body is no input of the function's kind; values are not repeated.
            FunctionError: no worker can be started.
        """
        worker = await self._worker(instance)
        kind = self._running[instance.instance_id].entity.type
        return kind, await worker.call(_parsed(kind, body))

    async def health(self, instance: FunctionInstance) -> Entity:
        """Raises FunctionError when no worker can be started."""
        await self._worker(instance)
        return self._running[instance.instance_id].entity

    async def stop(self, instance: FunctionInstance) -> None:
        """End its workers for good."""
        running = self._running.pop(instance.instance_id, None)
        if running is not None:
            running.starting.cancel()
            result = (await asyncio.gather(running.starting, return_exceptions=True))[0]
            if isinstance(result, Instance):
                await result.close()
        await asyncio.to_thread(self._note, instance, InstanceStatus.DELETED, None)

    async def restart(self, instance: FunctionInstance) -> None:
        """Put a new worker in the place of each, one after another, while calls go on.

        Raises:
            FunctionError: a new worker does not start; the old ones go on.
        """
        await (await self._worker(instance)).restart()

    def readings(self) -> dict[str, Reading]:
        """How each instance stands that has been started, by its id."""
        return {
            instance_id: started.reading()
            for instance_id, running in self._running.items()
            if (started := _started(running)) is not None
        }

    async def close(self) -> None:
        running, self._running = list(self._running.values()), {}
        for one in running:
            one.starting.cancel()
        results = await asyncio.gather(*(one.starting for one in running), return_exceptions=True)
        await asyncio.gather(*(result.close() for result in results if isinstance(result, Instance)))
        await asyncio.to_thread(self._writer.close)

    async def _worker(self, instance: FunctionInstance) -> Instance:
        running = self._running.get(instance.instance_id)
        if running is None:
            if len(self._running) >= MAX_RUNNING:
                raise ThrottledError(
                    msg("{max_running} function instances are running already", max_running=MAX_RUNNING),
                    fix=msg("delete some that are not needed"),
                )
            entity = await asyncio.to_thread(self._entity, instance)
            running = self._running.get(instance.instance_id)
            if running is None:
                starting = asyncio.create_task(self._spawn(instance, entity))
                running = self._running[instance.instance_id] = _Running(starting, entity)
        try:
            return await asyncio.shield(running.starting)
        except asyncio.CancelledError:
            if running.starting.cancelled():
                raise FunctionError(
                    msg("instance {instance_id!r} was deleted", instance_id=instance.instance_id)
                ) from None
            raise
        except BaseException:
            if self._running.get(instance.instance_id) is running:
                del self._running[instance.instance_id]
            raise

    async def _spawn(self, instance: FunctionInstance, entity: Entity) -> Instance:
        runtime = RuntimeRequest.model_validate(instance.runtime)
        python: Path | None = None
        if runtime.layer_code is not None:
            python = await self._layers.finished(instance.workspace_id, runtime.layer_code)
        limits, home = self._settings.limits, self._settings.home
        root = await asyncio.to_thread(unpack, self._blobs, home, entity.bundle, limits)
        sized = runtime.sized()
        spec = WorkerSpec(
            name=entity.func,
            classpath=entity.classpath,
            root=root,
            func_type=entity.type,
            timeout_s=_TIMEOUT_S,
            concurrency=sized.concurrency,
            env=runtime.env_texts,
            python=python,
            limits=limits_of(sized),
        )
        worker = Instance(
            spec,
            job_id=instance.instance_id,
            client=self._client,
            on_line=lambda _component, stream, text: self._line(instance.instance_id, stream, text),
            grace_s=_GRACE_S,
            start_limit_s=_START_LIMIT_S,
            size=PoolSize.of(sized),
        )
        try:
            await worker.start()
        except BaseException:
            await worker.close()
            raise
        return worker

    def _entity(self, instance: FunctionInstance) -> Entity:
        with self._database.read() as session:
            fresh = get_instance(session, instance.instance_id)
            if fresh.status is InstanceStatus.DELETED:
                raise FunctionError(
                    msg("instance {instance_id!r} was deleted", instance_id=instance.instance_id),
                    fix=msg("bring the function online again"),
                )
            return get_entity(session, instance.entity_id, workspace_id=instance.workspace_id)

    def _note(
        self, instance: FunctionInstance, status: InstanceStatus, error: str | None
    ) -> FunctionInstance:
        changed = instance.model_copy(update={"status": status, "error": error})
        with self._database.write() as session:
            if status is not InstanceStatus.DELETED:
                fresh = get_instance(session, instance.instance_id)
                if fresh.status is InstanceStatus.DELETED:
                    return fresh
            record_instance(session, changed)
        return changed

    def _line(self, instance_id: str, stream: str, text: str) -> None:
        line = (datetime.now(UTC), stream, text)
        self._writer.put(lambda session: record_instance_lines(session, instance_id, [line]))


@asynccontextmanager
async def open_instances(
    settings: Settings, database: Database, blobs: Blobs, layers: LayerBuilder
) -> AsyncGenerator[Instances]:
    async with new_client() as client:
        instances = Instances(settings, database, blobs, layers, client)
        try:
            yield instances
        finally:
            await instances.close()


def _started(running: _Running) -> Instance | None:
    starting = running.starting
    if not starting.done() or starting.cancelled() or starting.exception() is not None:
        return None
    return starting.result()


def _parsed(kind: FunctionType, body: bytes) -> FunctionInput:
    def refuse(name: str) -> float:
        raise ValueError(f"{name} is not JSON")

    try:
        values: object = json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise RequestError(msg("Invalid JSON body: {error}", error=error)) from error
    given = cast("dict[str, object]", values).get("func_type") if isinstance(values, dict) else None
    if given is not None and given != kind.value:
        raise RequestError(
            msg("func_type is {given!r}, but this is a {kind} function", given=given, kind=kind)
        )
    try:
        return INPUT_OF[kind].model_validate(values)
    except ValidationError as error:
        raise RequestError(
            msg(
                "Request parsing error: {validation_text}",
                validation_text=validation_text(error, show_values=False),
            )
        ) from error
