"""`/deployments`: create, list, scale, limit, delete; DashScope's contract on this machine's replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, field_validator
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from strop.doors.dashscope.paging import PageHere
from strop.doors.dashscope.replies import output
from strop.doors.documented import EVENTS
from strop.doors.event_stream import EventStream
from strop.doors.json_body import JsonRoute
from strop.doors.requests import CallerHere, ServicesHere
from strop.schema.access import Caller
from strop.schema.deployment import Deployment
from strop.schema.responses import without_nulls
from strop.service import deployments
from strop.service.deployments import Capacity, Limit, NewDeployment
from strop.service.services import Services

router = APIRouter(route_class=JsonRoute, prefix="/deployments", tags=["deployments"])

PLANS = ("mu", "cu", "lora", "ptu")


class DeploymentRequest(NewDeployment):
    """`plan`, `template_id`, `deploy_spec` and `billing_method` choose cloud hardware and prices; they are
    accepted, and the reply says that they have no effect here."""

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


class ScaleRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    capacity: Capacity
    deployed_model: str | None = None


class LimitRequest(BaseModel):
    """Null takes a limit away; a field that is left out stays."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    rpm_limit: Limit | None = None
    tpm_limit: Limit | None = None
    deployed_model: str | None = None


@router.post("", summary="Deploy a model: registered, published or bundled")
async def create(
    request: Request, services: ServicesHere, caller: CallerHere, new: DeploymentRequest
) -> Response:
    reply = _reply(await deployments.create(services, caller, new), services)
    ignored = new.without_effect()
    if ignored:
        reply["message"] = f"without effect on this server: {', '.join(ignored)}"
    return output(request, reply)


@router.get("", summary="The deployments of this workspace, newest first")
async def list_(request: Request, services: ServicesHere, caller: CallerHere, page: PageHere) -> Response:
    found, total = await run_in_threadpool(
        deployments.list_deployments, services, caller, page_no=page.page_no, page_size=page.page_size
    )
    return output(request, page.filled(total, deployments=[_reply(one, services) for one in found]))


@router.get("/{deployed_model}", summary="One deployment: its status and how many replicas answer")
async def get(request: Request, services: ServicesHere, caller: CallerHere, deployed_model: str) -> Response:
    deployment = await run_in_threadpool(deployments.get, services, caller, deployed_model)
    return output(request, _reply(deployment, services))


@router.put("/{deployed_model}/scale", summary="Have another number of replicas")
async def scale(
    request: Request, services: ServicesHere, caller: CallerHere, deployed_model: str, body: ScaleRequest
) -> Response:
    deployment = await deployments.scale(services, caller, deployed_model, body.capacity)
    return output(request, _reply(deployment, services))


@router.put("/{deployed_model}/update", summary="Set calls and tokens a minute")
async def update(
    request: Request, services: ServicesHere, caller: CallerHere, deployed_model: str, body: LimitRequest
) -> Response:
    limits = body.model_dump(exclude_unset=True, exclude={"deployed_model"})
    deployment = await deployments.limit(services, caller, deployed_model, limits)
    return output(request, _reply(deployment, services))


@router.delete("/{deployed_model}", summary="End a deployment once its answers under way are finished")
async def delete(
    request: Request, services: ServicesHere, caller: CallerHere, deployed_model: str
) -> Response:
    await deployments.delete(services, caller, deployed_model)
    return output(request, {"status": "success", "deployed_model": deployed_model})


@router.get(
    "/{deployed_model}/stream",
    summary="Its states as server-sent events, until it runs or has failed",
    response_class=StreamingResponse,
    responses=EVENTS,
)
async def stream(services: ServicesHere, caller: CallerHere, deployed_model: str) -> Response:
    await run_in_threadpool(deployments.get, services, caller, deployed_model)
    return EventStream(_states(services, caller, deployed_model), services.streams, caller.workspace_id)


async def _states(services: Services, caller: Caller, deployed_model: str) -> AsyncIterator[bytes]:
    """Each state once."""
    sent = b""
    async for deployment in deployments.changes(services, caller, deployed_model):
        state = orjson.dumps(without_nulls(_reply(deployment, services)))
        if state != sent:
            sent = state
            yield b"data:" + state + b"\n\n"


def _reply(deployment: Deployment, services: Services) -> dict[str, Any]:
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
