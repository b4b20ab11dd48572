"""Registered functions: their instances with gauges and logs, and a form that calls one."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from strop.config.function import RuntimeRequest
from strop.console.pages import BASE, page
from strop.console.requests import CallerHere, ServicesHere
from strop.console.words import pretty
from strop.errors import FunctionError, RequestError
from strop.schema.entity import FunctionInstance, InstanceStatus
from strop.schema.function import FunctionType
from strop.service import functions
from strop.service.services import Services
from strop.store.logs import instance_lines
from strop.workers.gauges import Reading

router = APIRouter()

NUM_LINES = 200
_ASK_NO_MORE = 286
"""With this status htmx puts in what is answered, here nothing, and ends its asking."""

EXAMPLES: dict[FunctionType, dict[str, Any]] = {
    FunctionType.ROLLOUT: {
        "func_type": "rollout",
        "messages": [{"role": "user", "content": "2 + 2?"}],
        "ground_truth": "4",
        "model_resource": {
            "model_name": "DEPLOYMENT",
            "base_url": "http://127.0.0.1:8080/v1",
            "api_key": "API_KEY",
        },
    },
    FunctionType.REWARD: {
        "func_type": "reward",
        "ground_truth": "4",
        "agent_output": {"messages": [{"role": "assistant", "content": "4"}]},
    },
    FunctionType.GROUP_REWARD: {
        "func_type": "group_reward",
        "agent_outputs": [
            {"messages": [{"role": "assistant", "content": "4"}]},
            {"messages": [{"role": "assistant", "content": "5"}]},
        ],
    },
}
"""What a first call may look like, by kind."""


@router.get("/functions")
def list_page(request: Request, services: ServicesHere, caller: CallerHere) -> Response:
    entities, instances = functions.list_functions(services, caller)
    by_entity: dict[str, list[FunctionInstance]] = {}
    for one in instances:
        by_entity.setdefault(one.entity_id, []).append(one)
    return page(request, "functions.html", entities=entities, by_entity=by_entity)


@router.get("/functions/{entity_id}")
def function_page(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    entity_id: str,
    instance: Annotated[str, Query(max_length=200)] = "",
    q: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    found = functions.get(services, caller, entity_id)
    chosen = next(
        (one for one in found.instances if one.instance_id == instance), next(iter(found.instances), None)
    )
    return _function(request, services, found, chosen, q=q)


@router.get("/functions/{entity_id}/gauges")
def gauges(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    entity_id: str,
    instance: Annotated[str, Query(max_length=200)],
) -> Response:
    """The piece of the page that shows how an instance stands; it asks for itself again while it is there."""
    found = functions.get(services, caller, entity_id)
    chosen = next((one for one in found.instances if one.instance_id == instance), None)
    if chosen is None:
        return Response(status_code=_ASK_NO_MORE)
    return page(
        request, "_gauges.html", entity=found.entity, chosen=chosen, reading=_reading(services, chosen)
    )


@router.post("/functions/{entity_id}/start")
async def start(services: ServicesHere, caller: CallerHere, entity_id: str) -> Response:
    await functions.start(services, caller, entity_id, RuntimeRequest())
    return RedirectResponse(f"{BASE}/functions/{entity_id}", status_code=303)


@router.post("/functions/{entity_id}/stop")
async def stop(
    services: ServicesHere,
    caller: CallerHere,
    entity_id: str,
    instance: Annotated[str, Form(max_length=200)],
) -> Response:
    await functions.stop(services, caller, instance)
    return RedirectResponse(f"{BASE}/functions/{entity_id}", status_code=303)


@router.post("/functions/{entity_id}/forget")
def forget(services: ServicesHere, caller: CallerHere, entity_id: str) -> Response:
    functions.forget(services, caller, entity_id)
    return RedirectResponse(f"{BASE}/functions", status_code=303)


@router.post("/functions/{entity_id}/call")
async def call(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    entity_id: str,
    instance: Annotated[str, Form(max_length=200)],
    body: Annotated[str, Form(max_length=1_000_000)],
) -> Response:
    """Call an instance as the test form asks; what it says, or how it failed, stands below the form."""
    found = functions.get(services, caller, entity_id)
    chosen = await run_in_threadpool(functions.instance_of, services, caller, instance)
    result: dict[str, Any]
    try:
        _, reply = await services.instances.call(chosen, body.encode())
        output = None if reply.output is None else json.loads(reply.output.model_dump_json())
        result = {"output": output, "error": reply.error, "error_code": reply.error_code}
        failed = reply.error is not None
    except (RequestError, FunctionError) as error:
        result, failed = {"error": error.message}, True
    answer = {
        "text": pretty({key: value for key, value in result.items() if value is not None}),
        "failed": failed,
    }
    return _function(request, services, found, chosen, body=body, answer=answer)


def _reading(services: Services, chosen: FunctionInstance | None) -> Reading | None:
    """None while it starts, and where another server has it."""
    return services.instances.readings().get(chosen.instance_id) if chosen is not None else None


def _function(
    request: Request,
    services: Services,
    found: functions.RegisteredFunction,
    chosen: FunctionInstance | None,
    *,
    q: str = "",
    body: str | None = None,
    answer: dict[str, Any] | None = None,
) -> Response:
    lines: list[Any] = []
    if chosen is not None:
        words = [q] if q else []
        with services.database.read() as session:
            _, total = instance_lines(session, chosen.instance_id, page_no=1, page_size=1, keywords=words)
            last_page = max(1, -(-total // NUM_LINES))
            lines, _ = instance_lines(
                session, chosen.instance_id, page_no=last_page, page_size=NUM_LINES, keywords=words
            )
    counts = {status: sum(one.status is status for one in found.instances) for status in InstanceStatus}
    return page(
        request,
        "function.html",
        entity=found.entity,
        instances=found.instances,
        chosen=chosen,
        reading=_reading(services, chosen),
        counts=counts,
        lines=lines,
        q=q,
        body=body if body is not None else pretty(EXAMPLES[found.entity.type]),
        answer=answer,
    )
