"""Models and deployments: names with their lineage, replicas with their load, the buttons of both."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from strop.console.job_output import MAX_DEPLOYMENTS, deploy_model
from strop.console.jobs import leaves
from strop.console.pages import BASE, page
from strop.console.requests import CallerHere, ServicesHere
from strop.schema.deployment import Deployment
from strop.schema.model import ModelKind, NamedModel
from strop.service import deployments, models
from strop.service.services import Services
from strop.store.deployments import served_from

router = APIRouter()

PAGE_SIZE = 50


@router.get("/models")
def models_page(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    page_no: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> Response:
    found, total = models.list_models(services, caller, page_no=page_no, page_size=PAGE_SIZE)
    more = page_no * PAGE_SIZE < total
    return page(request, "models.html", models=found, page_no=page_no, more=more, kinds=ModelKind)


@router.get("/models/{name}")
def model_page(request: Request, services: ServicesHere, caller: CallerHere, name: str) -> Response:
    model = models.get(services, caller, name)
    with services.database.read() as session:
        served = served_from(session, name, workspace_id=caller.workspace_id)
    return page(request, "model.html", model=model, served=served, kinds=ModelKind, config=_config(model))


@router.post("/models/{name}/deploy")
async def deploy(
    services: ServicesHere,
    caller: CallerHere,
    name: str,
    suffix: Annotated[str, Form(max_length=32)] = "",
    capacity: Annotated[int, Form()] = 1,
) -> Response:
    await deploy_model(services, caller, {"model_name": name, "capacity": capacity, "suffix": suffix or None})
    return RedirectResponse(f"{BASE}/deployments", status_code=303)


@router.post("/models/{name}/delete")
def delete_model(services: ServicesHere, caller: CallerHere, name: str) -> Response:
    models.delete(services, caller, name)
    return RedirectResponse(f"{BASE}/models", status_code=303)


@router.get("/deployments")
async def deployments_page(request: Request, services: ServicesHere, caller: CallerHere) -> Response:
    found, _ = await run_in_threadpool(
        deployments.list_deployments, services, caller, page_no=1, page_size=MAX_DEPLOYMENTS
    )
    rows = [_row(services, caller, one) for one in found]
    template = "_deployments.html" if request.headers.get("hx-request") else "deployments.html"
    moves = any(row["ready"] != row["one"].capacity for row in rows)
    return page(request, template, rows=rows, moves=moves)


def _row(services: Services, caller: CallerHere, one: Deployment) -> dict[str, Any]:
    """A deployment, how many of its replicas answer, and what the proxy has counted."""
    deployed = services.fleets.find(one.deployed_model, caller.workspace_id)
    return {
        "one": one,
        "ready": services.fleets.num_ready(one.deployed_model),
        "traffic": deployed.traffic if deployed is not None else None,
    }


@router.post("/deployments/{name}/scale")
async def scale(
    services: ServicesHere,
    caller: CallerHere,
    name: str,
    capacity: Annotated[int, Form(ge=1, le=deployments.MAX_CAPACITY)],
) -> Response:
    await deployments.scale(services, caller, name, capacity)
    return RedirectResponse(f"{BASE}/deployments", status_code=303)


@router.post("/deployments/{name}/delete")
async def delete_deployment(services: ServicesHere, caller: CallerHere, name: str) -> Response:
    await deployments.delete(services, caller, name)
    return RedirectResponse(f"{BASE}/deployments", status_code=303)


def _config(model: NamedModel) -> list[tuple[str, Any]]:
    return leaves(model.lineage.config) if model.lineage is not None else []
