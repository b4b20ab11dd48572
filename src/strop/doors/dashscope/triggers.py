"""`/functions/{instance}/...`: DashScope's container protocol, behind the token of the instance."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from strop.doors.documented import FUNCTION_FAILURES
from strop.doors.middleware import bearer
from strop.doors.requests import ServicesHere, public_url
from strop.errors import FunctionError, RequestError
from strop.schema.entity import FunctionInstance
from strop.schema.function import INPUT_OF
from strop.schema.reply import FunctionReply
from strop.service.functions import callable_instance
from strop.service.services import Services
from strop.workers.pooled import outcome

router = APIRouter(prefix="/functions/{instance_id}", tags=["functions"], responses=FUNCTION_FAILURES)


def trigger_url(request: Request, services: Services, instance_id: str) -> str:
    return f"{public_url(request, services.settings)}/functions/{instance_id}"


@router.post("/api/v1", summary="Call a function instance")
async def call(request: Request, services: ServicesHere, instance_id: str) -> Response:
    instance = await _allowed(request, services, instance_id)
    try:
        _, reply = await services.instances.call(instance, await request.body())
    except RequestError as error:
        status = 400 if error.message.startswith("Invalid JSON") else 422
        return _refused(status, error.message)
    except FunctionError as error:
        return _failed(500, str(error))
    return _answer(reply)


@router.get("/health", summary="Whether a function instance serves")
async def health(request: Request, services: ServicesHere, instance_id: str) -> Response:
    instance = await _allowed(request, services, instance_id)
    try:
        entity = await services.instances.health(instance)
    except FunctionError as error:
        return JSONResponse({"status": "unhealthy", "message": str(error)}, status_code=503)
    parser = INPUT_OF[entity.type].__name__
    described = {"func_type": entity.type.value, "processor": entity.func, "parser": parser}
    return JSONResponse({"status": "healthy", **described})


async def _allowed(request: Request, services: Services, instance_id: str) -> FunctionInstance:
    """The token first: whoever has none learns nothing, not even whether the instance exists."""
    token = bearer(request.scope)
    return await run_in_threadpool(callable_instance, services, instance_id, token)


def _answer(reply: FunctionReply) -> Response:
    came = outcome(reply)
    if isinstance(came, bytes):
        return Response(came, media_type="application/json")
    if came.http_status < 500:
        return _refused(came.http_status, came.message)
    return _failed(came.http_status, came.message, came.error_code)


def _refused(status: int, text: str) -> Response:
    """`Message` is where DashScope's clients look for more than the status' name."""
    return JSONResponse({"detail": text, "Message": f"ValidationError: {text}"}, status_code=status)


def _failed(status: int, text: str, code: str | None = None) -> Response:
    return JSONResponse({"message": text, "error_code": code or "exception"}, status_code=status)
