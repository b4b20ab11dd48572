"""Functions: upload URLs, layers, registration, instances, their logs: DashScope's calls and some of ours."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from strop.doors.dashscope.replies import output
from strop.doors.dashscope.runtime_request import InstanceRuntimeRequest
from strop.doors.dashscope.triggers import trigger_url
from strop.doors.dashscope.uploads import upload_url
from strop.doors.json_body import JsonRoute
from strop.doors.requests import CallerHere, ServicesHere
from strop.schema.entity import Entity, FunctionInstance
from strop.schema.function import FunctionType
from strop.service import functions
from strop.service.functions import NewFunction, trigger_token
from strop.service.services import Services

router = APIRouter(route_class=JsonRoute, tags=["functions"])


class UploadUrlRequest(BaseModel):
    unique_key: str


class LayerRequest(BaseModel):
    layer_name: str = Field(default="", max_length=256)
    requirements_content: str


class FunctionRequest(BaseModel):
    """`code_url` is what call 1 gave; it is never fetched: the bundle is known by its `unique_key`."""

    name: str = Field(min_length=1, max_length=1024)
    unique_key: str
    func: str = Field(min_length=1, max_length=256)
    code_url: str = ""

    def new(self) -> NewFunction:
        return NewFunction(name=self.name, func=self.func, unique_key=self.unique_key)


Keyword = Annotated[str, Field(max_length=200)]


class LogsRequest(BaseModel):
    """Times are seconds since 1970."""

    model_config = ConfigDict(populate_by_name=True)

    page_number: int = Field(default=1, ge=1, le=1_000_000, alias="pageNumber")
    page_size: int = Field(default=100, ge=1, le=1000, alias="pageSize")
    start_time: float | None = Field(default=None, ge=0, le=1e11, alias="startTime")
    end_time: float | None = Field(default=None, ge=0, le=1e11, alias="endTime")
    keywords: Annotated[list[Keyword], Field(max_length=20)] | Keyword | None = None

    @property
    def words(self) -> list[str]:
        given = [self.keywords] if isinstance(self.keywords, str) else self.keywords or []
        return [word for word in given if word]


@router.post("/fine-tunes/generate/faas/upload/url", summary="An address that takes a code bundle")
def generate_upload_url(
    request: Request, services: ServicesHere, caller: CallerHere, body: UploadUrlRequest
) -> Response:
    return output(request, {"url": upload_url(request, services, caller.workspace_id, body.unique_key)})


@router.post("/fine-tunes/create/faas/layer", summary="Make an environment from a requirements.txt")
def create_layer(
    request: Request, services: ServicesHere, caller: CallerHere, body: LayerRequest
) -> Response:
    layer = functions.create_layer(services, caller, body.requirements_content)
    return output(request, {"layer_code": layer.layer_code, "status": layer.status.value})


@router.get("/fine-tunes/query/faas/layer/status", summary="How the build of a layer stands")
def layer_status(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    layer_code: Annotated[str, Query(max_length=200)],
) -> Response:
    layer = functions.layer(services, caller, layer_code)
    return output(request, {"layer_code": layer_code, "status": layer.status.value, "log": layer.log})


@router.post("/fine-tunes/create/rollout", summary="Register a rollout function")
def create_rollout(
    request: Request, services: ServicesHere, caller: CallerHere, body: FunctionRequest
) -> Response:
    entity = functions.register(services, caller, FunctionType.ROLLOUT, body.new())
    return output(request, {"rollout_id": entity.entity_id})


@router.post("/fine-tunes/create/reward", summary="Register a reward function")
def create_reward(
    request: Request, services: ServicesHere, caller: CallerHere, body: FunctionRequest
) -> Response:
    entity = functions.register(services, caller, FunctionType.REWARD, body.new())
    return output(request, {"reward_id": entity.entity_id})


@router.post("/fine-tunes/create/group-reward", summary="Register a group reward function")
def create_group_reward(
    request: Request, services: ServicesHere, caller: CallerHere, body: FunctionRequest
) -> Response:
    entity = functions.register(services, caller, FunctionType.GROUP_REWARD, body.new())
    return output(request, {"group_reward_id": entity.entity_id, "reward_id": entity.entity_id})


@router.post(
    "/fine-tunes/online/faas/{job_ref}/{entity_id}",
    summary="Bring a function online: start an instance of it",
)
async def bring_online(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_ref: str,
    entity_id: str,
    body: InstanceRuntimeRequest,
) -> Response:
    instance = await functions.start(services, caller, entity_id, body)
    reply = _instance_reply(request, services, instance)
    return output(request, reply | {"not_honoured": body.not_honoured()})


@router.post(
    "/fine-tunes/restart/faas/{instance_id}",
    summary="Replace every worker of an instance by a new one while calls go on",
)
async def restart_instance(
    request: Request, services: ServicesHere, caller: CallerHere, instance_id: str
) -> Response:
    instance = await functions.restart(services, caller, instance_id)
    return output(request, _instance_reply(request, services, instance))


@router.post("/fine-tunes/query/faas/log/{instance_id}", summary="What an instance printed")
def instance_logs(
    request: Request, services: ServicesHere, caller: CallerHere, instance_id: str, body: LogsRequest
) -> Response:
    lines, total = functions.logs(
        services,
        caller,
        instance_id,
        page_no=body.page_number,
        page_size=body.page_size,
        since_s=body.start_time,
        until_s=body.end_time,
        keywords=body.words,
    )
    entries = [
        {"instance_id": instance_id, "message": text, "stream": stream, "timestamp": int(when.timestamp())}
        for when, stream, text in lines
    ]
    page = {"page_number": body.page_number, "page_size": body.page_size, "total_count": total}
    return output(request, page | {"log_entries": entries})


@router.post("/fine-tunes/query/faas/{instance_id}", summary="How an instance stands, and how to call it")
def query_instance(
    request: Request, services: ServicesHere, caller: CallerHere, instance_id: str
) -> Response:
    instance = functions.living_instance(services, caller, instance_id)
    return output(request, _instance_reply(request, services, instance))


@router.post("/fine-tunes/delete/faas/{instance_id}", summary="End an instance")
async def delete_instance(
    request: Request, services: ServicesHere, caller: CallerHere, instance_id: str
) -> Response:
    await functions.stop(services, caller, instance_id)
    return output(request, {"status": "deleted", "instance_id": instance_id}, key="data")


@router.get("/functions", summary="Registered functions, newest first")
def list_functions(request: Request, services: ServicesHere, caller: CallerHere) -> Response:
    entities, instances = functions.list_functions(services, caller)
    return output(
        request,
        {
            "functions": [_entity_reply(entity) for entity in entities],
            "instances": [_listed_instance(instance) for instance in instances],
            "total": len(entities),
        },
    )


@router.get("/functions/{entity_id}", summary="One registered function")
def get_function(request: Request, services: ServicesHere, caller: CallerHere, entity_id: str) -> Response:
    found = functions.get(services, caller, entity_id)
    instances = [_listed_instance(instance) for instance in found.instances]
    return output(request, _entity_reply(found.entity) | {"instances": instances})


@router.delete("/functions/{entity_id}", summary="Forget a registered function")
def delete_function(request: Request, services: ServicesHere, caller: CallerHere, entity_id: str) -> Response:
    functions.forget(services, caller, entity_id)
    return output(request, {"entity_id": entity_id, "deleted": True})


def _entity_reply(entity: Entity) -> dict[str, Any]:
    return {
        "entity_id": entity.entity_id,
        "type": entity.type.value,
        "name": entity.name,
        "func": entity.func,
        "classpath": entity.classpath,
        "bundle_sha256": entity.bundle,
        "create_time": entity.created_at.strftime("%Y-%m-%d %H:%M:%S"),
    }


def _listed_instance(instance: FunctionInstance) -> dict[str, Any]:
    runtime = InstanceRuntimeRequest.model_validate(instance.runtime)
    return {
        "instance_id": instance.instance_id,
        "entity_id": instance.entity_id,
        "status": instance.status.code,
        "state": instance.status.value,
        "error": instance.error,
        "runtime": runtime.effective(),
        "create_time": instance.created_at.strftime("%Y-%m-%d %H:%M:%S"),
    }


def _instance_reply(request: Request, services: Services, instance: FunctionInstance) -> dict[str, Any]:
    """With its load, address and token, the latter in both spellings that clients look for."""
    reading = services.instances.readings().get(instance.instance_id)
    return _listed_instance(instance) | {
        "load": asdict(reading) if reading is not None else None,
        "instanceId": instance.instance_id,
        "trigger_url": trigger_url(request, services, instance.instance_id),
        "trigger_token": trigger_token(services.signer, instance.instance_id),
    }
