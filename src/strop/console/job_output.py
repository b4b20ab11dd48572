"""A job's Output tab: checkpoints with their scores, publishing, deploying, and base beside tuned model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Form, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from strop.console.job_frame import JobHere, job_here, job_page
from strop.console.pages import BASE
from strop.console.requests import CallerHere, ServicesHere
from strop.errors import RequestError
from strop.locales import msg
from strop.schema.deployment import Deployment
from strop.schema.job import Checkpoint
from strop.schema.model import NamedModel
from strop.service import deployments, models
from strop.service.services import Services
from strop.store.checkpoints import best_checkpoint, list_checkpoints
from strop.store.deployments import numbered_deployments
from strop.store.jobs import get_job
from strop.store.model_folder import check_name
from strop.store.models import models_of_job
from strop.store.trajectory_lists import Wanted, find_trajectories, get_by_key

router = APIRouter()

MAX_DEPLOYMENTS = 200


@router.get("/jobs/{job_id}/output")
async def output_page(request: Request, services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    here, checkpoints, published, deployed = await run_in_threadpool(_read, services, caller, job_id)
    tuned = {model.name for model in published}
    return job_page(
        request,
        services,
        here,
        "output",
        checkpoints=checkpoints,
        best=best_checkpoint(here.job, checkpoints),
        models=published,
        suggested=here.job.config.get("tuned_model_name") or job_id,
        of_base=[_served(services, one) for one in deployed if one.model_name == here.job.model],
        of_tuned=[_served(services, one) for one in deployed if one.model_name in tuned],
        by_checkpoint=_by_checkpoint(published),
    )


def _read(
    services: Services, caller: CallerHere, job_id: str
) -> tuple[JobHere, list[Checkpoint], list[NamedModel], list[Deployment]]:
    with services.database.read() as session:
        here = job_here(session, job_id, caller)
        deployed, _ = numbered_deployments(
            session, workspace_id=caller.workspace_id, page_no=1, page_size=MAX_DEPLOYMENTS
        )
        checkpoints = list_checkpoints(session, job_id, with_removed=True)
        return here, checkpoints, models_of_job(session, job_id), deployed


@router.post("/jobs/{job_id}/publish")
def publish(
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    checkpoint: Annotated[str, Form(max_length=300)],
    model_name: Annotated[str, Form(max_length=128)],
) -> Response:
    check_name(model_name)
    models.publish(services, caller, job_id, checkpoint, model_name)
    return RedirectResponse(f"{BASE}/jobs/{job_id}/output", status_code=303)


@router.post("/jobs/{job_id}/deploy")
async def deploy(
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    model_name: Annotated[str, Form(max_length=256)],
) -> Response:
    await deploy_model(services, caller, {"model_name": model_name})
    return RedirectResponse(f"{BASE}/jobs/{job_id}/output", status_code=303)


async def deploy_model(services: Services, caller: CallerHere, fields: dict[str, Any]) -> None:
    """Raises RequestError: a field of the form is invalid."""
    try:
        new = deployments.NewDeployment.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise RequestError(
            msg("{first}: {first2}", first=".".join(map(str, first["loc"])), first2=first["msg"])
        ) from error
    await deployments.create(services, caller, new)


@router.post("/ask")
async def ask(request: Request, services: ServicesHere, caller: CallerHere) -> Response:
    """One deployed model's answer as a stream, as `/v1/chat/completions` gives it."""
    return await request.app.state.ask(request, services, caller)


@router.get("/jobs/{job_id}/prompt")
def example_prompt(services: ServicesHere, caller: CallerHere, job_id: str) -> Response:
    """The messages before the first sampled answer of a recorded rollout: something to ask both models."""
    with services.database.read() as session:
        get_job(session, job_id, workspace_id=caller.workspace_id)
        found = find_trajectories(session, job_id, Wanted(split="validation"), limit=1).items
        found = found or find_trajectories(session, job_id, Wanted(split="train"), limit=1).items
        turns = get_by_key(session, job_id, found[0].key)[1].trajectory.turns if found else ()
    messages = list(turns[0].messages) if turns else []
    return Response(orjson.dumps({"messages": messages}), media_type="application/json")


def _by_checkpoint(models: Sequence[NamedModel]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for model in models:
        if model.lineage is not None:
            names.setdefault(model.lineage.checkpoint_id, []).append(model.name)
    return names


def _served(services: Services, one: Deployment) -> dict[str, Any]:
    ready = services.fleets.num_ready(one.deployed_model)
    return {"name": one.deployed_model, "model": one.model_name, "status": one.status.value, "ready": ready}
