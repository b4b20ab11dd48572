"""`/v1/traces`: the OTLP/HTTP receiver. What is answered 200 is stored; more than fits is answered 503, to
come again. Who may send what is for `service.traces` to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from strop.doors.failures import failure, request_id
from strop.doors.middleware import bearer
from strop.doors.otlp import decoding as otlp
from strop.doors.requests import ServicesHere
from strop.schema.span import JOB_ID, Span
from strop.service import traces
from strop.service.functions import check_trigger_token
from strop.service.services import Services
from strop.service.span_forwarding import FORWARDED
from strop.store.database import Database

router = APIRouter(tags=["traces"])

RETRY_AFTER_S = 1


@router.post("/v1/traces", summary="Receive spans (OTLP/HTTP)", include_in_schema=False)
async def receive(request: Request, services: ServicesHere) -> Response:
    token = bearer(request.scope)
    sender = await run_in_threadpool(traces.sender_with, services.database, services.signer, token)
    return await _receive(request, services, sender)


@router.post("/functions/{instance_id}/v1/traces", include_in_schema=False)
async def receive_of_instance(request: Request, services: ServicesHere, instance_id: str) -> Response:
    check_trigger_token(services.signer, instance_id, bearer(request.scope))
    sender = await run_in_threadpool(traces.sender_of_instance, services.database, instance_id)
    return await _receive(request, services, sender)


async def _receive(request: Request, services: Services, sender: traces.Sender) -> Response:
    if services.span_batches >= traces.MAX_AT_ONCE:
        busy = failure(request.url.path, request_id(request), 503, "too many batches of spans at once")
        busy.headers["retry-after"] = str(RETRY_AFTER_S)
        return busy
    services.span_batches += 1
    forwarding = services.forwarding
    try:
        content_type = request.headers.get("content-type", "")
        encoding = request.headers.get("content-encoding", "")
        body = await request.body()
        taken = await run_in_threadpool(_take, services.database, sender, body, content_type, encoding)
        stored = taken.stored
        if forwarding is not None and FORWARDED not in request.headers and any(stored.new):
            forwarding.put(await run_in_threadpool(otlp.serialized, taken.message, stored.new))
    finally:
        services.span_batches -= 1
    answer = otlp.reply(stored.rejected, stored.why, content_type=content_type)
    kind = otlp.JSON if content_type.startswith(otlp.JSON) else otlp.PROTOBUF
    return Response(answer, media_type=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """A batch as it was sent, and what became of it."""

    message: ExportTraceServiceRequest
    stored: traces.Stored


def _take(database: Database, sender: traces.Sender, body: bytes, content_type: str, encoding: str) -> _Taken:
    """Read a batch and write what belongs to jobs that the sender may write to."""
    message = otlp.parse(body, content_type=content_type, encoding=encoding)
    spans = [
        traces.NamedSpan(span=span, job_id=_named_job(span, resource))
        for span, resource in otlp.spans_of(message)
    ]
    return _Taken(message=message, stored=traces.store(database, sender, spans))


def _named_job(span: Span, resource: Mapping[str, Any]) -> str | None:
    found = span.attributes.get(JOB_ID) or resource.get(JOB_ID)
    return str(found) if found else None
