"""`/fine-tunes/{job}/spans` and `/diagnosis`: what ran inside a job's rollouts, and what goes wrong in it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from strop.diagnosis.texts import RULES
from strop.doors.dashscope.replies import output
from strop.doors.requests import CallerHere, ServicesHere
from strop.locales import in_both
from strop.schema.finding import Finding
from strop.schema.span import Span, SpanKind, SpanStatus
from strop.service.job_history import reading
from strop.store.findings import list_findings
from strop.store.spans import list_spans, preview, span_tree

router = APIRouter(prefix="/fine-tunes/{job_id}", tags=["fine-tunes"])

Words = Annotated[str | None, Query(max_length=512)]


@router.get("/spans", summary="Spans of a job, in the order of arrival")
def spans(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    rollout_id: Words = None,
    attempt_id: Words = None,
    sample_id: Words = None,
    trace_id: Words = None,
    kind: SpanKind | None = None,
    status: SpanStatus | None = None,
    name: Words = None,
    text: Words = None,
    min_duration_ms: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
    after: Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    with reading(services, caller, job_id) as session:
        page = list_spans(
            session,
            job_id,
            rollout_id=rollout_id,
            attempt_id=attempt_id,
            sample_id=sample_id,
            trace_id=trace_id,
            kind=kind,
            status=status,
            name=name,
            text=text,
            min_duration_ms=min_duration_ms,
            after=after,
            limit=limit,
        )
    return output(
        request, {"spans": [span_reply(one) for one in page.items], "next": page.next, "more": page.more}
    )


@router.get("/spans/tree", summary="The spans of one rollout as trees, depth first")
def tree(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    job_id: str,
    rollout_id: Annotated[str, Query(max_length=512)],
    attempt_id: Words = None,
) -> Response:
    with reading(services, caller, job_id) as session:
        placed = span_tree(session, job_id, rollout_id, attempt_id=attempt_id)
    replies = [
        {"depth": one.depth, "offset_ms": one.offset_ns / 1e6, **span_reply(one.span)} for one in placed
    ]
    return output(request, {"spans": replies})


@router.get("/diagnosis", summary="What goes wrong in a job, with evidence, cause and what to do")
def diagnosis(
    request: Request, services: ServicesHere, caller: CallerHere, job_id: str, open_only: bool = False
) -> Response:
    with reading(services, caller, job_id) as session:
        found = list_findings(session, job_id, open_only=open_only)
    return output(request, {"findings": [finding_reply(one) for one in found]})


def span_reply(span: Span) -> dict[str, Any]:
    """A span; times in milliseconds, `start_ms` since 1970."""
    return {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_span_id,
        "name": span.name,
        "kind": span.kind.value,
        "status": span.status.value,
        "message": span.message,
        "start_ms": span.start_ns / 1e6,
        "duration_ms": span.duration_ns / 1e6,
        "rollout_id": span.rollout_id,
        "sample_id": span.sample_id,
        "attempt_id": span.attempt_id,
        "preview": preview(span),
        "attributes": span.attributes,
        "events": list(span.events),
        "scope": span.scope,
        "service": span.service,
    }


def finding_reply(finding: Finding) -> dict[str, Any]:
    """A finding with the words of its rule; without them where that is a rule of another version."""
    text = RULES.get(finding.rule)
    if text is None:
        return {"title": None, "cause": None, "advice": None, **finding.shown()}
    words: dict[str, Any] = {
        "title": in_both(text.title),
        "cause": in_both(text.cause),
        "advice": in_both(text.advice),
    }
    return {**words, **finding.shown()}
