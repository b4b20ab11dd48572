"""Settings -> the control plane as one ASGI app. `strop up` serves it, tests drive it in process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from fastapi import APIRouter, Depends, FastAPI
from fastapi.security import HTTPBearer

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
from strop.doors.documented import FAILURES
from strop.doors.failures import install_failures
from strop.doors.middleware import RequestMiddleware
from strop.doors.openai import proxy as openai_proxy
from strop.doors.otlp import traces
from strop.service.fleet import Patience, Runs
from strop.service.flow import Flow
from strop.service.keys import caller_with
from strop.service.replica import Replica, ReplicaSpec
from strop.service.services import open_services, running
from strop.service.settings import Settings
from strop.service.supervisor.trainers import TRAINER_COMMAND

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
        ConfigError: spans are to be forwarded to where they cannot go.
    """
    services = open_services(
        settings, flow, trainer_command=trainer_command, make_replica=make_replica, patience=patience
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with running(services):
            yield

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
    key_needed = [Depends(HTTPBearer(auto_error=False, description="An API key of this server"))]
    for router in ROUTERS:
        app.include_router(router, prefix=API, dependencies=key_needed, responses=FAILURES)
    for router in OPEN_ROUTERS:
        app.include_router(router)

    app.add_middleware(RequestMiddleware, lookup=partial(caller_with, services), limits=settings.limits)
    return app
