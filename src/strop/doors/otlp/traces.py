"""`/v1/traces`: the OTLP/HTTP receiver. What is answered 200 is stored; more than fits is answered 503, to
come again.

Who may write: a job's token (its function workers have one), an API key (spans then name a job of its
workspace), and below `/functions/{instance}` the instance's trigger token.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from strop.doors.dashscope.replies import failure, request_id
from strop.doors.dashscope.triggers import TRIGGER_PURPOSE
from strop.doors.middleware import bearer
from strop.doors.otlp import decoding as otlp
from strop.doors.services import Services, ServicesHere
from strop.errors import AccessError, MissingError
from strop.schema.access import Caller
from strop.schema.span import JOB_ID, Span
from strop.service.secret import Signer
from strop.service.span_access import is_job_token, job_of_token
from strop.service.span_forwarding import FORWARDED
from strop.store.database import Database
from strop.store.entities import get_instance
from strop.store.jobs import get_job
from strop.store.keys import caller_of
from strop.store.spans import record_spans

router = APIRouter(tags=["traces"])

MAX_AT_ONCE = 8
"""Batches being stored at the same time; each holds its body in memory."""

RETRY_AFTER_S = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Who sends spans: for one job, or for any job of a workspace."""

    workspace_id: str | None = None
    job_id: str | None = None


@router.post("/v1/traces", summary="Receive spans (OTLP/HTTP)", include_in_schema=False)
async def receive(request: Request, services: ServicesHere) -> Response:
    sender = await run_in_threadpool(_sender, services, bearer(request.scope))
    return await _receive(request, services, sender)


@router.post("/functions/{instance_id}/v1/traces", include_in_schema=False)
async def receive_of_instance(request: Request, services: ServicesHere, instance_id: str) -> Response:
    given = bearer(request.scope)
    if not services.signer.holds(given, TRIGGER_PURPOSE, instance_id):
        raise AccessError("missing or wrong trigger token", fix="query the instance for its trigger_token")
    sender = await run_in_threadpool(_sender_of_instance, services.database, instance_id)
    return await _receive(request, services, sender)


async def _receive(request: Request, services: Services, sender: Sender) -> Response:
    received = services.received
    if received.busy >= MAX_AT_ONCE:
        received.turned_away += 1
        busy = failure(request.url.path, request_id(request), 503, "too many batches of spans at once")
        busy.headers["retry-after"] = str(RETRY_AFTER_S)
        return busy
    received.busy += 1
    forwarding = services.span_forwarding
    try:
        content_type = request.headers.get("content-type", "")
        encoding = request.headers.get("content-encoding", "")
        body = await request.body()
        taken = await run_in_threadpool(_take, services.database, sender, body, content_type, encoding)
        if forwarding is not None and FORWARDED not in request.headers and any(taken.new):
            forwarding.put(await run_in_threadpool(otlp.serialized, taken.message, taken.new))
    finally:
        received.busy -= 1
    received.stored += taken.stored
    received.rejected += taken.rejected
    answer = otlp.reply(taken.rejected, taken.why, content_type=content_type)
    kind = otlp.JSON if content_type.startswith(otlp.JSON) else otlp.PROTOBUF
    return Response(answer, media_type=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """`new` says of each span of the message whether it was stored just now, and not before."""

    stored: int
    rejected: int
    why: str
    message: ExportTraceServiceRequest
    new: Sequence[bool]


def _take(database: Database, sender: Sender, body: bytes, content_type: str, encoding: str) -> _Taken:
    """Read a batch and write what belongs to jobs that the sender may write to."""
    message = otlp.parse(body, content_type=content_type, encoding=encoding)
    found = otlp.spans_of(message)
    new = [False] * len(found)
    of_jobs: defaultdict[str, dict[int, Span]] = defaultdict(dict)
    refused: Counter[str] = Counter()
    for place, (span, resource) in enumerate(found):
        job_id = sender.job_id or _named_job(span, resource)
        if job_id is None:
            refused[f"a span names no job: set the attribute {JOB_ID}"] += 1
        elif len(span.trace_id) != 32 or len(span.span_id) != 16:
            refused["a span without a trace id of 16 bytes and a span id of 8"] += 1
        else:
            of_jobs[job_id][place] = span
    stored = 0
    with database.write() as session:
        for job_id, spans in of_jobs.items():
            if _writable(session, job_id, sender):
                written = record_spans(session, job_id, list(spans.values()))
                stored += len(spans)
                for place, span in spans.items():
                    new[place] = (span.trace_id, span.span_id) in written
            else:
                refused[f"no job {job_id!r} that this token may write to"] += len(spans)
    why = "; ".join(f"{count} x {reason}" for reason, count in refused.most_common(3))
    return _Taken(stored=stored, rejected=refused.total(), why=why, message=message, new=new)


def _named_job(span: Span, resource: Mapping[str, Any]) -> str | None:
    found = span.attributes.get(JOB_ID) or resource.get(JOB_ID)
    return str(found) if found else None


def _writable(session: Session, job_id: str, sender: Sender) -> bool:
    try:
        get_job(session, job_id, workspace_id=sender.workspace_id)
    except MissingError:
        return False
    return True


def _sender(services: Services, given: str) -> Sender:
    """Raises AccessError: nobody that we know."""
    if is_job_token(given):
        return _sender_of_job(services.signer, given)
    if not given:
        raise AccessError(
            "no token was sent with the spans",
            fix="set OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20KEY with an API key of this server",
        )
    with services.database.read() as session:
        caller: Caller = caller_of(session, given)
    return Sender(workspace_id=caller.workspace_id)


def _sender_of_job(signer: Signer, given: str) -> Sender:
    job_id = job_of_token(signer, given)
    if job_id is None:
        raise AccessError("this job token is not one of this server")
    return Sender(job_id=job_id)


def _sender_of_instance(database: Database, instance_id: str) -> Sender:
    with database.read() as session:
        return Sender(workspace_id=get_instance(session, instance_id).workspace_id)
