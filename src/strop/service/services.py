"""Settings -> everything that a job, a file, a function or a deployment needs: opened once, handed along.

A door hands it to the functions of this package, as does the console. Nothing here knows HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread

from strop.errors import StropError
from strop.locales import msg
from strop.service.fleet import Patience, Runs
from strop.service.fleets import Fleets
from strop.service.flow import Flow
from strop.service.instances import Instances, open_instances
from strop.service.layers import LayerBuilder
from strop.service.leftovers import clear_leftovers
from strop.service.replica import Replica, ReplicaSpec
from strop.service.secret import Signer, open_signer
from strop.service.settings import Settings
from strop.service.span_forwarding import (
    Backend,
    Forwarding,
    backend_from_environment,
    refuse_own_address,
)
from strop.service.streams import Streams
from strop.service.supervisor import Supervisor
from strop.service.supervisor.trainers import TRAINER_COMMAND, Trainers
from strop.store.blobs import Blobs
from strop.store.database import Database, open_database


@dataclass(slots=True, kw_only=True)
class Services:
    """What the functions of this package work with. `running` is there while the server serves, `forwarding`
    where spans go on to `span_backend`; `span_batches` are being stored right now."""

    settings: Settings
    database: Database
    blobs: Blobs
    signer: Signer
    layers: LayerBuilder
    flow: Flow
    supervisor: Supervisor
    fleets: Fleets
    streams: Streams = field(default_factory=Streams)
    span_batches: int = 0
    span_backend: Backend | None = None
    forwarding: Forwarding | None = None
    running: Instances | None = None

    @property
    def instances(self) -> Instances:
        if self.running is None:
            raise StropError(msg("the server is not serving"), fix=msg("use it inside `running`"))
        return self.running

    def folder_of(self, job_id: str) -> Path:
        """Where a job's rows, code and checkpoints are."""
        return self.settings.home / "jobs" / job_id


def open_services(
    settings: Settings,
    flow: Flow,
    *,
    trainer_command: Sequence[str] = TRAINER_COMMAND,
    make_replica: Callable[[ReplicaSpec], Runs] = Replica,
    patience: Patience | None = None,
) -> Services:
    """Open the store; nothing runs yet.

    Raises:
        StoreError: the database, the blob store or the home cannot be used.
        ConfigError: spans are to be forwarded to where they cannot go.
    """
    backend = backend_from_environment()
    if backend is not None and not settings.private:
        refuse_own_address(backend, host=settings.host, port=settings.port)
    database = open_database(settings.database_place)
    return Services(
        settings=settings,
        database=database,
        blobs=Blobs(settings.storage_place),
        signer=open_signer(settings.home),
        layers=LayerBuilder(database, settings.home),
        flow=flow,
        supervisor=Supervisor(settings, database, Trainers(settings, trainer_command)),
        fleets=Fleets(database, make=make_replica, patience=patience),
        span_backend=backend,
    )


@asynccontextmanager
async def running(services: Services) -> AsyncGenerator[None]:
    """Supervise jobs, deployments and function instances while the block runs, then close everything."""
    settings, database = services.settings, services.database
    if not settings.private:
        await anyio.to_thread.run_sync(clear_leftovers, settings.home, services.blobs, database)
        services.layers.take_up()
    if services.span_backend is not None:
        services.forwarding = Forwarding(services.span_backend)
        services.forwarding.start()
    supervision = asyncio.create_task(services.supervisor.run()) if settings.supervise else None
    if settings.supervise and not settings.private:
        await services.fleets.open()
    try:
        async with open_instances(settings, database, services.blobs, services.layers) as instances:
            services.running = instances
            yield
    finally:
        services.running = None
        await services.fleets.close()
        if services.forwarding is not None:
            await services.forwarding.close()
        if supervision is not None:
            supervision.cancel()
            await asyncio.gather(supervision, return_exceptions=True)
        services.supervisor.close()
        services.layers.close()
        database.close()
