"""Deployments: models that replicas on this machine serve. Create, list, scale, limit, delete.

Concurrency:
    The async functions are called from the event loop in which the server's fleets are open.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field

from strop.errors import MissingError
from strop.schema.access import Caller
from strop.schema.deployment import Deployment, DeploymentStatus
from strop.service.services import Services
from strop.store.deployments import (
    change_deployment,
    create_deployment,
    get_deployment,
    move_deployment,
    numbered_deployments,
)
from strop.store.models import usable_model

MAX_CAPACITY = 64
"""Replicas of one deployment on one machine; far beyond what one has memory for."""

Capacity = Annotated[int, Field(ge=1, le=MAX_CAPACITY)]
Limit = Annotated[int, Field(ge=1, le=10**12)]


class NewDeployment(BaseModel):
    """A model to serve: with how many replicas, under what suffix, within what calls and tokens a minute."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model_name: str = Field(min_length=1, max_length=256)
    capacity: Capacity = 1
    suffix: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")
    plan: str = "mu"
    rpm_limit: Limit | None = None
    tpm_limit: Limit | None = None


async def create(services: Services, caller: Caller, new: NewDeployment) -> Deployment:
    """Start replicas of a model: registered, published or bundled.

    Raises:
        ModelError: no such model. ConflictError: there is a deployment of that name.
    """
    deployment = await anyio.to_thread.run_sync(_create, services, caller, new)
    services.fleets.add(deployment)
    return deployment


def list_deployments(
    services: Services, caller: Caller, *, page_no: int, page_size: int
) -> tuple[list[Deployment], int]:
    """A page of the workspace's deployments, newest first, and how many there are."""
    with services.database.read() as session:
        return numbered_deployments(
            session, workspace_id=caller.workspace_id, page_no=page_no, page_size=page_size
        )


def get(services: Services, caller: Caller, deployed_model: str) -> Deployment:
    """Raises MissingError: no such deployment in the caller's workspace."""
    with services.database.read() as session:
        return get_deployment(session, deployed_model, workspace_id=caller.workspace_id)


async def scale(services: Services, caller: Caller, deployed_model: str, capacity: int) -> Deployment:
    """Have another number of replicas.

    Raises:
        MissingError: no such deployment here. ConflictError: it is being deleted.
    """
    return await _change(services, caller, deployed_model, {"capacity": capacity})


async def limit(
    services: Services, caller: Caller, deployed_model: str, limits: dict[str, int | None]
) -> Deployment:
    """Set `rpm_limit` and `tpm_limit`, those that are given; None takes a limit away.

    Raises:
        MissingError: no such deployment here. ConflictError: it is being deleted.
    """
    return await _change(services, caller, deployed_model, limits)


async def delete(services: Services, caller: Caller, deployed_model: str) -> None:
    """End a deployment once the answers under way are finished.

    Raises:
        MissingError: no such deployment here.
    """

    def move() -> None:
        get(services, caller, deployed_model)
        with services.database.write() as session:
            move_deployment(session, deployed_model, DeploymentStatus.DELETING)

    await anyio.to_thread.run_sync(move)
    services.fleets.remove(deployed_model)


async def changes(services: Services, caller: Caller, deployed_model: str) -> AsyncIterator[Deployment]:
    """The deployment as it is, and again whenever it may have changed; ends with the first state that does
    not pass by itself, or once it is deleted."""
    async for _ in services.fleets.changes():
        try:
            now = await anyio.to_thread.run_sync(get, services, caller, deployed_model)
        except MissingError:
            return
        yield now
        if now.status in (DeploymentStatus.RUNNING, DeploymentStatus.FAILED):
            return


def _create(services: Services, caller: Caller, new: NewDeployment) -> Deployment:
    now = datetime.now(UTC)
    with services.database.write() as session:
        model = usable_model(session, new.model_name, workspace_id=caller.workspace_id)
        deployment = Deployment(
            deployed_model=f"{model.name}-{new.suffix or secrets.token_hex(4)}",
            workspace_id=caller.workspace_id,
            model_name=model.name,
            base_model=model.base_model,
            source=model.source,
            plan=new.plan,
            capacity=new.capacity,
            rpm_limit=new.rpm_limit,
            tpm_limit=new.tpm_limit,
            status=DeploymentStatus.PENDING,
            creator=caller.key_name,
            modifier=caller.key_name,
            created_at=now,
            modified_at=now,
        )
        create_deployment(session, deployment)
    return deployment


async def _change(
    services: Services, caller: Caller, deployed_model: str, changes: dict[str, int | None]
) -> Deployment:
    def write() -> Deployment:
        with services.database.write() as session:
            return change_deployment(
                session,
                deployed_model,
                workspace_id=caller.workspace_id,
                modifier=caller.key_name,
                **changes,
            )

    deployment = await anyio.to_thread.run_sync(write)
    services.fleets.change(deployment)
    return deployment
