"""`/deployments`: make, list, scale, limit, delete; DashScope's contract on this machine's replicas."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from strop.doors.dashscope.paging import PageHere
from strop.doors.dashscope.replies import output, without_nulls
from strop.doors.documented import EVENTS
from strop.doors.json_body import JsonRoute
from strop.doors.services import CallerHere, Services, ServicesHere
from strop.doors.streams import EventStream
from strop.errors import MissingError
from strop.schema.access import Caller
from strop.schema.deployment import Deployment, DeploymentStatus
from strop.store.deployments import (
    change_deployment,
    create_deployment,
    get_deployment,
    move_deployment,
    numbered_deployments,
)
from strop.store.models import usable_model

router = APIRouter(route_class=JsonRoute, prefix="/deployments", tags=["deployments"])

MAX_CAPACITY = 64
"""Replicas of one deployment on one machine; far beyond what one has memory for."""

PLANS = ("mu", "cu", "lora", "ptu")

Capacity = Annotated[int, Field(ge=1, le=MAX_CAPACITY)]
Limit = Annotated[int, Field(ge=1, le=10**12)]


class Asked(BaseModel):
    """`plan`, `template_id`, `deploy_spec` and `billing_method` choose cloud hardware and prices; they are
    taken, and the reply says that they change nothing here."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model_name: str = Field(min_length=1, max_length=256)
    capacity: Capacity = 1
    suffix: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")
    plan: str = "mu"
    rpm_limit: Limit | None = None
    tpm_limit: Limit | None = None
    charge_type: str | None = None
    template_id: str | None = None
    deploy_spec: Any = None
    billing_method: Any = None
    model_version: str | None = None

    @field_validator("capacity", "plan", mode="before")
    @classmethod
    def _absent(cls, value: Any, info: Any) -> Any:
        """Clients send null for what was not set."""
        return cls.model_fields[info.field_name].default if value is None else value

    @field_validator("model_version")
    @classmethod
    def _no_version(cls, value: str | None) -> None:
        if value is not None:
            raise ValueError("a version is a name of its own here: give it as model_name, such as NAME-v2")

    @field_validator("plan")
    @classmethod
    def _known_plan(cls, value: str) -> str:
        if value.lower() not in PLANS:
            raise ValueError(f"expected one of {', '.join(PLANS)}")
        return value.lower()

    def without_effect(self) -> list[str]:
        names = ("template_id", "deploy_spec", "billing_method", "charge_type")
        return [name for name in names if getattr(self, name) is not None]


class Scaled(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    capacity: Capacity
    deployed_model: str | None = None


class Limited(BaseModel):
    """Null takes a limit away; a field that is left out stays."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    rpm_limit: Limit | None = None
    tpm_limit: Limit | None = None
    deployed_model: str | None = None


@router.post("", summary="Deploy a model: registered, published or bundled")
async def create(request: Request, services: ServicesHere, caller: CallerHere, asked: Asked) -> Response:
    deployment = await run_in_threadpool(_create, services, caller, asked)
    services.fleets.add(deployment)
    shown = _shown(deployment, services)
    ignored = asked.without_effect()
    if ignored:
        shown["message"] = f"without effect on this server: {', '.join(ignored)}"
    return output(request, shown)


@router.get("", summary="The deployments of this workspace, newest first")
async def list_(request: Request, services: ServicesHere, caller: CallerHere, page: PageHere) -> Response:
    def read() -> tuple[list[Deployment], int]:
        with services.database.read() as session:
            return numbered_deployments(
                session, workspace_id=caller.workspace_id, page_no=page.page_no, page_size=page.page_size
            )

    deployments, total = await run_in_threadpool(read)
    shown = [_shown(one, services) for one in deployments]
    return output(request, page.filled(total, deployments=shown))


@router.get("/{deployed_model}", summary="One deployment: its status and how many replicas answer")
async def get(request: Request, services: ServicesHere, caller: CallerHere, deployed_model: str) -> Response:
    deployment = await run_in_threadpool(_get, services, caller, deployed_model)
    return output(request, _shown(deployment, services))


@router.put("/{deployed_model}/scale", summary="Have another number of replicas")
async def scale(
    request: Request, services: ServicesHere, caller: CallerHere, deployed_model: str, asked: Scaled
) -> Response:
    return await _changed(request, services, caller, deployed_model, {"capacity": asked.capacity})


@router.put("/{deployed_model}/update", summary="Set calls and tokens a minute")
async def update(
    request: Request, services: ServicesHere, caller: CallerHere, deployed_model: str, asked: Limited
) -> Response:
    changes = asked.model_dump(exclude_unset=True, exclude={"deployed_model"})
    return await _changed(request, services, caller, deployed_model, changes)


@router.delete("/{deployed_model}", summary="End a deployment once its answers under way are finished")
async def delete(
    request: Request, services: ServicesHere, caller: CallerHere, deployed_model: str
) -> Response:
    def move() -> None:
        _get(services, caller, deployed_model)
        with services.database.write() as session:
            move_deployment(session, deployed_model, DeploymentStatus.DELETING)

    await run_in_threadpool(move)
    services.fleets.remove(deployed_model)
    return output(request, {"status": "success", "deployed_model": deployed_model})


@router.get(
    "/{deployed_model}/stream",
    summary="Its states as server-sent events, until it runs or has failed",
    response_class=StreamingResponse,
    responses=EVENTS,
)
async def stream(services: ServicesHere, caller: CallerHere, deployed_model: str) -> Response:
    first = await run_in_threadpool(_get, services, caller, deployed_model)
    return EventStream(_states(services, caller, first), services.streams, caller.workspace_id)


async def _states(services: Services, caller: Caller, last: Deployment) -> AsyncIterator[bytes]:
    """Ends with the first state that does not pass by itself."""
    told = b""
    async for _ in services.fleets.changes():
        try:
            last = await run_in_threadpool(_get, services, caller, last.deployed_model)
        except MissingError:
            return
        state = orjson.dumps(without_nulls(_shown(last, services)))
        if state != told:
            told = state
            yield b"data:" + state + b"\n\n"
        if last.status in (DeploymentStatus.RUNNING, DeploymentStatus.FAILED):
            return


def _create(services: Services, caller: Caller, asked: Asked) -> Deployment:
    now = datetime.now(UTC)
    with services.database.write() as session:
        model = usable_model(session, asked.model_name, workspace_id=caller.workspace_id)
        deployment = Deployment(
            deployed_model=f"{model.name}-{asked.suffix or secrets.token_hex(4)}",
            workspace_id=caller.workspace_id,
            model_name=model.name,
            base_model=model.base_model,
            source=model.source,
            plan=asked.plan,
            capacity=asked.capacity,
            rpm_limit=asked.rpm_limit,
            tpm_limit=asked.tpm_limit,
            status=DeploymentStatus.PENDING,
            creator=caller.key_name,
            modifier=caller.key_name,
            created_at=now,
            modified_at=now,
        )
        create_deployment(session, deployment)
    return deployment


def _get(services: Services, caller: Caller, deployed_model: str) -> Deployment:
    with services.database.read() as session:
        return get_deployment(session, deployed_model, workspace_id=caller.workspace_id)


async def _changed(
    request: Request, services: Services, caller: Caller, deployed_model: str, changes: dict[str, Any]
) -> Response:
    def write() -> Deployment:
        with services.database.write() as session:
            return change_deployment(
                session,
                deployed_model,
                workspace_id=caller.workspace_id,
                modifier=caller.key_name,
                **changes,
            )

    deployment = await run_in_threadpool(write)
    services.fleets.change(deployment)
    return output(request, _shown(deployment, services))


def _shown(deployment: Deployment, services: Services) -> dict[str, Any]:
    return {
        "deployed_model": deployment.deployed_model,
        "status": deployment.status.value,
        "model_name": deployment.model_name,
        "base_model": deployment.base_model,
        "base_capacity": 1,
        "capacity": deployment.capacity,
        "ready_capacity": services.fleets.num_ready(deployment.deployed_model),
        "plan": deployment.plan,
        "rpm_limit": deployment.rpm_limit,
        "tpm_limit": deployment.tpm_limit,
        "error_message": deployment.error,
        "workspace_id": deployment.workspace_id,
        "charge_type": "post_paid",
        "creator": deployment.creator,
        "modifier": deployment.modifier,
        "gmt_create": deployment.created_at.isoformat(),
        "gmt_modified": deployment.modified_at.isoformat(),
    }
