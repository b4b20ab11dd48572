"""`/models`: the names that jobs and deployments may use; publishing a job's checkpoint under one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from strop.doors.dashscope.paging import PageHere
from strop.doors.dashscope.replies import output
from strop.doors.json_body import JsonRoute
from strop.doors.requests import CallerHere, ServicesHere
from strop.schema.model import ModelKind, NamedModel
from strop.service import models

router = APIRouter(route_class=JsonRoute, tags=["models"])

Source = Annotated[
    Literal["custom", "base"] | None, Query(description="custom: published by training; base: registered")
]
KIND_OF = {"custom": ModelKind.PUBLISHED, "base": ModelKind.REGISTERED}


@router.get("/models", summary="The models of this workspace and those that everybody may use")
@router.get("/deployments/models", summary="The models that can be deployed: all of them")
def list_(
    request: Request, services: ServicesHere, caller: CallerHere, page: PageHere, model_source: Source = None
) -> Response:
    kind = KIND_OF[model_source] if model_source else None
    found, total = models.list_models(
        services, caller, page_no=page.page_no, page_size=page.page_size, kind=kind
    )
    return output(request, page.filled(total, models=[_reply(model) for model in found]))


@router.get("/models/{name}", summary="One model, with the lineage of a published one")
def get(request: Request, services: ServicesHere, caller: CallerHere, name: str) -> Response:
    return output(request, _reply(models.get(services, caller, name)))


@router.delete("/models/{name}", summary="Remove a published model that is not deployed")
def delete(request: Request, services: ServicesHere, caller: CallerHere, name: str) -> Response:
    models.delete(services, caller, name)
    return output(request, {"status": "success", "model_name": name})


@router.get(
    "/fine-tunes/{job_id}/export/{checkpoint}",
    summary="Publish a checkpoint: its id, a step, `last` or `best` by validation",
)
def export(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    checkpoint: str,
    model_name: Annotated[str, Query(min_length=1, max_length=128)],
) -> Response:
    which = checkpoint.removeprefix(f"{job_id}:checkpoint-")
    return output(request, _reply(models.publish(services, caller, job_id, which, model_name)))


def _reply(model: NamedModel) -> dict[str, Any]:
    lineage = model.lineage
    return {
        "model_name": model.name,
        "model_source": "custom" if model.kind is ModelKind.PUBLISHED else "base",
        "base_model": model.base_model,
        "gmt_create": model.created_at.isoformat(),
        "lineage": lineage.model_dump(mode="json", exclude={"files"}) if lineage is not None else None,
    }
