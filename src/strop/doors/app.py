"""Settings -> the control plane as one ASGI app. `strop up` serves it, tests drive it in process."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from strop import __version__
from strop.doors import api_page, health
from strop.doors.dashscope import (
    deployments,
    evaluations,
    files,
    fine_tunes,
    functions,
    job_details,
    job_insights,
    models,
    triggers,
    uploads,
)
from strop.doors.dashscope.replies import install_failures
from strop.doors.documented import FAILURES
from strop.doors.middleware import RequestMiddleware
from strop.doors.openai import proxy as openai_proxy
from strop.doors.otlp import traces
from strop.doors.services import Services
from strop.schema.access import DEFAULT_WORKSPACE, Caller
from strop.service.fleet import Patience, Runs
from strop.service.fleets import Fleets
from strop.service.flow import Flow
from strop.service.instances import open_instances
from strop.service.layers import LayerBuilder
from strop.service.leftovers import clear_leftovers
from strop.service.replica import Replica, ReplicaSpec
from strop.service.secret import open_signer
from strop.service.settings import Settings
from strop.service.span_forwarding import Forwarding, backend_from_environment, refuse_own_address
from strop.service.supervisor import Supervisor
from strop.service.supervisor.trainers import TRAINER_COMMAND, Trainers
from strop.store.blobs import Blobs
from strop.store.database import open_database
from strop.store.keys import caller_of

API = "/api/v1"

ROUTERS: Sequence[APIRouter] = (
    files.router,
    functions.router,
    fine_tunes.router,
    job_details.router,
    job_insights.router,
    models.router,
    deployments.router,
    evaluations.router,
)
"""Nouns below `/api/v1`, one module each."""

OPEN_ROUTERS: Sequence[APIRouter] = (
    health.router,
    api_page.router,
    uploads.router,
    traces.router,
    triggers.router,
    openai_proxy.router,
)
"""Paths of their own, which need no API key or check one themselves."""


def create_app(
    settings: Settings,
    flow: Flow,
    *,
    trainer_command: Sequence[str] = TRAINER_COMMAND,
    make_replica: Callable[[ReplicaSpec], Runs] = Replica,
    patience: Patience | None = None,
) -> FastAPI:
    """Open the store and wire the routes; while it serves, jobs and deployments are supervised.

    Raises:
        StoreError: the database, the blob store or the home cannot be used.
        ConfigError: spans are to be passed on to where they cannot be.
    """
    backend = backend_from_environment()
    if backend is not None and not settings.private:
        refuse_own_address(backend, host=settings.host, port=settings.port)
    database = open_database(settings.database_place)
    services = Services(
        settings=settings,
        database=database,
        blobs=Blobs(settings.storage_place),
        signer=open_signer(settings.home),
        layers=LayerBuilder(database, settings.home),
        flow=flow,
        supervisor=Supervisor(settings, database, Trainers(settings, trainer_command)),
        fleets=Fleets(database, make=make_replica, patience=patience),
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        if not settings.private:
            await run_in_threadpool(clear_leftovers, settings.home, services.blobs, database)
            services.layers.take_up()
        if backend is not None:
            services.span_forwarding = Forwarding(backend)
            services.span_forwarding.start()
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
            if services.span_forwarding is not None:
                await services.span_forwarding.close()
            if supervision is not None:
                supervision.cancel()
                await asyncio.gather(supervision, return_exceptions=True)
            services.supervisor.close()
            services.layers.close()
            database.close()

    app = FastAPI(
        title="Strop",
        version=__version__,
        summary="Reinforcement fine-tuning of language models and agents, on DashScope's wire.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    install_failures(app)
    shown = [Depends(HTTPBearer(auto_error=False, description="An API key of this server"))]
    for router in ROUTERS:
        app.include_router(router, prefix=API, dependencies=shown, responses=FAILURES)
    for router in OPEN_ROUTERS:
        app.include_router(router)

    def lookup(key: str) -> Caller:
        own = settings.own_key
        if own is not None and secrets.compare_digest(key.encode(), own.encode()):
            return Caller(workspace_id=DEFAULT_WORKSPACE, key_id="own", key_name="local")
        with services.database.read() as session:
            return caller_of(session, key)

    app.add_middleware(RequestMiddleware, lookup=lookup, limits=settings.limits)
    return app
