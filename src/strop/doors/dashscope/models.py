"""`/models`: the names that jobs and deployments may use; publishing a job's checkpoint under one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from strop.doors.dashscope.paging import PageHere
from strop.doors.dashscope.replies import output
from strop.doors.json_body import JsonRoute
from strop.doors.services import CallerHere, ServicesHere
from strop.errors import ConflictError, ForbiddenError, MissingError
from strop.schema.model import ModelKind, NamedModel
from strop.store.checkpoints import list_checkpoints
from strop.store.deployments import served_from
from strop.store.jobs import get_job
from strop.store.models import bundled_model, find_model, numbered_models, remove_model
from strop.store.published import choose_checkpoint, publish_checkpoint, remove_published

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
    with services.database.read() as session:
        models, total = numbered_models(
            session,
            workspace_id=caller.workspace_id,
            kind=kind,
            page_no=page.page_no,
            page_size=page.page_size,
        )
    if kind is not ModelKind.PUBLISHED:
        total += 1  # the bundled one, last of all
        if len(models) < page.page_size and (page.page_no - 1) * page.page_size + len(models) == total - 1:
            models.append(bundled_model())
    return output(request, page.filled(total, models=[_shown(model) for model in models]))


@router.get("/models/{name}", summary="One model, with the lineage of a published one")
def get(request: Request, services: ServicesHere, caller: CallerHere, name: str) -> Response:
    with services.database.read() as session:
        model = find_model(session, name, workspace_id=caller.workspace_id)
    if model is None and name.lower() == bundled_model().name:
        model = bundled_model()
    if model is None:
        raise _missing(name)
    return output(request, _shown(model))


@router.delete("/models/{name}", summary="Remove a published model that is not deployed")
def delete(request: Request, services: ServicesHere, caller: CallerHere, name: str) -> Response:
    with services.database.write() as session:
        model = find_model(session, name, workspace_id=caller.workspace_id)
        if model is None:
            raise _missing(name)
        if model.kind is not ModelKind.PUBLISHED:
            raise ForbiddenError(
                f"the model {name!r} is in the operator's table", fix="strop models remove NAME"
            )
        served = served_from(session, name)
        if served:
            raise ConflictError(
                f"the model {name!r} is deployed as {', '.join(served)}", fix="delete the deployment first"
            )
        remove_model(session, name)
        remove_published(name)  # first the files: a row without them can be removed again
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
    with services.database.read() as session:
        job = get_job(session, job_id, workspace_id=caller.workspace_id)
        which = checkpoint.removeprefix(f"{job_id}:checkpoint-")
        chosen = choose_checkpoint(job, list_checkpoints(session, job_id), which)
    model = publish_checkpoint(services.database, chosen, model_name)
    return output(request, _shown(model))


def _shown(model: NamedModel) -> dict[str, Any]:
    lineage = model.lineage
    return {
        "model_name": model.name,
        "model_source": "custom" if model.kind is ModelKind.PUBLISHED else "base",
        "base_model": model.base_model,
        "gmt_create": model.created_at.isoformat(),
        "lineage": lineage.model_dump(mode="json", exclude={"files"}) if lineage is not None else None,
    }


def _missing(name: str) -> MissingError:
    return MissingError(f"there is no model {name!r}", fix="list the models and take a name from there")
