"""Functions: upload URLs, layers, registration, instances, their logs: DashScope's calls and some of ours."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from strop.doors.dashscope.replies import output
from strop.doors.dashscope.runtime_request import RuntimeAsked
from strop.doors.dashscope.triggers import trigger_token, trigger_url
from strop.doors.dashscope.uploads import check_unique_key, upload_url
from strop.doors.json_body import JsonRoute
from strop.doors.services import CallerHere, Services, ServicesHere
from strop.errors import ConflictError, MissingError, RequestError
from strop.schema.access import Caller
from strop.schema.entity import Entity, FunctionInstance, InstanceStatus, Layer, LayerStatus
from strop.schema.function import FunctionType
from strop.service.bundles import unpack
from strop.service.code_check import check_class
from strop.service.layers import usable
from strop.store.entities import (
    create_entity,
    delete_entity,
    get_entity,
    get_instance,
    get_layer,
    get_upload,
    list_entities,
    list_instances,
    record_instance,
)
from strop.store.logs import instance_lines

router = APIRouter(route_class=JsonRoute, tags=["functions"])

_ID_PREFIX = {FunctionType.ROLLOUT: "ro", FunctionType.REWARD: "rw", FunctionType.GROUP_REWARD: "grw"}


class UploadUrlAsked(BaseModel):
    unique_key: str


class LayerAsked(BaseModel):
    layer_name: str = Field(default="", max_length=256)
    requirements_content: str


class FunctionAsked(BaseModel):
    """`code_url` is what call 1 gave; it is never fetched: the bundle is known by its `unique_key`."""

    name: str = Field(min_length=1, max_length=1024)
    unique_key: str
    func: str = Field(min_length=1, max_length=256)
    code_url: str = ""


Keyword = Annotated[str, Field(max_length=200)]


class LogsAsked(BaseModel):
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
    request: Request, services: ServicesHere, caller: CallerHere, asked: UploadUrlAsked
) -> Response:
    key = check_unique_key(asked.unique_key)
    return output(request, {"url": upload_url(request, services, caller.workspace_id, key)})


@router.post("/fine-tunes/create/faas/layer", summary="Make an environment from a requirements.txt")
def create_layer(request: Request, services: ServicesHere, caller: CallerHere, asked: LayerAsked) -> Response:
    layer = services.layers.create(caller.workspace_id, asked.requirements_content)
    return output(request, {"layer_code": layer.layer_code, "status": layer.status.value})


@router.get("/fine-tunes/query/faas/layer/status", summary="How the build of a layer stands")
def layer_status(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    layer_code: Annotated[str, Query(max_length=200)],
) -> Response:
    layer = _layer(services, caller, layer_code)
    return output(request, {"layer_code": layer_code, "status": layer.status.value, "log": layer.log})


@router.post("/fine-tunes/create/rollout", summary="Register a rollout function")
def create_rollout(
    request: Request, services: ServicesHere, caller: CallerHere, asked: FunctionAsked
) -> Response:
    return output(request, {"rollout_id": _register(services, caller, FunctionType.ROLLOUT, asked)})


@router.post("/fine-tunes/create/reward", summary="Register a reward function")
def create_reward(
    request: Request, services: ServicesHere, caller: CallerHere, asked: FunctionAsked
) -> Response:
    return output(request, {"reward_id": _register(services, caller, FunctionType.REWARD, asked)})


@router.post("/fine-tunes/create/group-reward", summary="Register a group reward function")
def create_group_reward(
    request: Request, services: ServicesHere, caller: CallerHere, asked: FunctionAsked
) -> Response:
    entity_id = _register(services, caller, FunctionType.GROUP_REWARD, asked)
    return output(request, {"group_reward_id": entity_id, "reward_id": entity_id})


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
    asked: RuntimeAsked,
) -> Response:
    instance = await run_in_threadpool(_new_instance, services, caller, entity_id, asked)
    instance = await services.instances.start(instance)
    shown = _instance_shown(request, services, instance)
    return output(request, shown | {"not_honoured": asked.not_honoured()})


@router.post(
    "/fine-tunes/restart/faas/{instance_id}",
    summary="Replace every worker of an instance by a new one while calls go on",
)
async def restart_instance(
    request: Request, services: ServicesHere, caller: CallerHere, instance_id: str
) -> Response:
    instance = await run_in_threadpool(_read_instance, services, caller, instance_id)
    await services.instances.restart(instance)
    return output(request, _instance_shown(request, services, instance))


@router.post("/fine-tunes/query/faas/log/{instance_id}", summary="What an instance printed")
def instance_logs(
    request: Request, services: ServicesHere, caller: CallerHere, instance_id: str, asked: LogsAsked
) -> Response:
    with services.database.read() as session:
        get_instance(session, instance_id, workspace_id=caller.workspace_id)
        lines, total = instance_lines(
            session,
            instance_id,
            page_no=asked.page_number,
            page_size=asked.page_size,
            since_s=asked.start_time,
            until_s=asked.end_time,
            keywords=asked.words,
        )
    entries = [
        {"instance_id": instance_id, "message": text, "stream": stream, "timestamp": int(when.timestamp())}
        for when, stream, text in lines
    ]
    page = {"page_number": asked.page_number, "page_size": asked.page_size, "total_count": total}
    return output(request, page | {"log_entries": entries})


@router.post("/fine-tunes/query/faas/{instance_id}", summary="How an instance stands, and how to call it")
def query_instance(
    request: Request, services: ServicesHere, caller: CallerHere, instance_id: str
) -> Response:
    return output(request, _instance_shown(request, services, _read_instance(services, caller, instance_id)))


@router.post("/fine-tunes/delete/faas/{instance_id}", summary="End an instance")
async def delete_instance(
    request: Request, services: ServicesHere, caller: CallerHere, instance_id: str
) -> Response:
    def read() -> FunctionInstance:
        with services.database.read() as session:
            return get_instance(session, instance_id, workspace_id=caller.workspace_id)

    await services.instances.stop(await run_in_threadpool(read))
    return output(request, {"status": "deleted", "instance_id": instance_id}, key="data")


@router.get("/functions", summary="Registered functions, newest first")
def list_functions(request: Request, services: ServicesHere, caller: CallerHere) -> Response:
    with services.database.read() as session:
        entities = list_entities(session, workspace_id=caller.workspace_id)
        instances = list_instances(session, workspace_id=caller.workspace_id)
    listed = [_entity_shown(entity) for entity in entities]
    running = [_instance_listed(instance) for instance in instances]
    return output(request, {"functions": listed, "instances": running, "total": len(listed)})


@router.get("/functions/{entity_id}", summary="One registered function")
def get_function(request: Request, services: ServicesHere, caller: CallerHere, entity_id: str) -> Response:
    with services.database.read() as session:
        entity = get_entity(session, entity_id, workspace_id=caller.workspace_id)
        instances = list_instances(session, workspace_id=caller.workspace_id)
    own = [_instance_listed(instance) for instance in instances if instance.entity_id == entity_id]
    return output(request, _entity_shown(entity) | {"instances": own})


@router.delete("/functions/{entity_id}", summary="Forget a registered function")
def delete_function(request: Request, services: ServicesHere, caller: CallerHere, entity_id: str) -> Response:
    with services.database.write() as session:
        instances = list_instances(session, workspace_id=caller.workspace_id)
        running = [one.instance_id for one in instances if one.entity_id == entity_id]
        if running:
            raise ConflictError(
                f"function {entity_id!r} has instances: {', '.join(running)}", fix="delete them first"
            )
        delete_entity(session, entity_id, workspace_id=caller.workspace_id)
    return output(request, {"entity_id": entity_id, "deleted": True})


def _register(services: Services, caller: Caller, kind: FunctionType, asked: FunctionAsked) -> str:
    key = check_unique_key(asked.unique_key)
    with services.database.read() as session:
        try:
            upload = get_upload(session, caller.workspace_id, key)
        except MissingError as error:  # of a body's field, not of the path
            raise RequestError(error.message, fix=error.fix) from error
    settings = services.settings
    folder = unpack(services.blobs, settings.home, upload.sha256, settings.limits)
    check_class(folder, asked.name, asked.func)
    entity = Entity(
        entity_id=f"{_ID_PREFIX[kind]}-{secrets.token_hex(12)}",
        workspace_id=caller.workspace_id,
        type=kind,
        name=asked.name,
        func=asked.func,
        unique_key=key,
        bundle=upload.sha256,
        created_at=datetime.now(UTC),
    )
    with services.database.write() as session:
        return create_entity(session, entity).entity_id


def _layer(services: Services, caller: Caller, layer_code: str) -> Layer:
    with services.database.read() as session:
        return get_layer(session, layer_code, workspace_id=caller.workspace_id)


def _new_instance(
    services: Services, caller: Caller, entity_id: str, asked: RuntimeAsked
) -> FunctionInstance:
    with services.database.read() as session:
        entity = get_entity(session, entity_id, workspace_id=caller.workspace_id)
    if asked.layer_code is not None:
        layer = _layer(services, caller, asked.layer_code)
        if layer.status is not LayerStatus.BUILDING:
            usable(layer, services.settings.home)
    instance = FunctionInstance(
        instance_id=f"{_ID_PREFIX[entity.type]}-ins-{secrets.token_hex(12)}",
        workspace_id=caller.workspace_id,
        entity_id=entity_id,
        status=InstanceStatus.STARTING,
        runtime=asked.model_dump(exclude_none=True),
        created_at=datetime.now(UTC),
    )
    with services.database.write() as session:
        record_instance(session, instance)
    return instance


def _read_instance(services: Services, caller: Caller, instance_id: str) -> FunctionInstance:
    with services.database.read() as session:
        instance = get_instance(session, instance_id, workspace_id=caller.workspace_id)
    if instance.status is InstanceStatus.DELETED:
        raise ConflictError(f"instance {instance_id!r} was deleted", fix="bring the function online again")
    return instance


def _entity_shown(entity: Entity) -> dict[str, Any]:
    return {
        "entity_id": entity.entity_id,
        "type": entity.type.value,
        "name": entity.name,
        "func": entity.func,
        "classpath": entity.classpath,
        "bundle_sha256": entity.bundle,
        "create_time": entity.created_at.strftime("%Y-%m-%d %H:%M:%S"),
    }


def _instance_listed(instance: FunctionInstance) -> dict[str, Any]:
    asked = RuntimeAsked.model_validate(instance.runtime)
    return {
        "instance_id": instance.instance_id,
        "entity_id": instance.entity_id,
        "status": instance.status.code,
        "state": instance.status.value,
        "error": instance.error,
        "runtime": asked.effective(),
        "create_time": instance.created_at.strftime("%Y-%m-%d %H:%M:%S"),
    }


def _instance_shown(request: Request, services: Services, instance: FunctionInstance) -> dict[str, Any]:
    """With its load, address and token, the latter in both spellings that clients look for."""
    reading = services.instances.readings().get(instance.instance_id)
    return _instance_listed(instance) | {
        "load": asdict(reading) if reading is not None else None,
        "instanceId": instance.instance_id,
        "trigger_url": trigger_url(request, services, instance.instance_id),
        "trigger_token": trigger_token(services.signer, instance.instance_id),
    }
