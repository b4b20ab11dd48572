"""Spans by the few things that a test is about."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from strop.schema.span import ATTEMPT_ID, GATEWAY_SCOPE, ROLLOUT_ID, SPAN_KIND, Span, SpanKind, SpanStatus

TRACE = "0af7651916cd43dd8448eb211c80319c"


def span(number: int, **changes: Any) -> Span:
    """Span `number` of one trace: it starts `number` milliseconds after the epoch and takes one."""
    values: dict[str, Any] = {
        "trace_id": TRACE,
        "span_id": f"{number:016x}",
        "parent_span_id": None,
        "name": f"chat m{number}",
        "kind": SpanKind.LLM,
        "status": SpanStatus.OK,
        "start_ns": number * 1_000_000,
        "duration_ns": 1_000_000,
        "rollout_id": "s1-0-r0",
        "attempt_id": "a1",
        "sample_id": "sample",
    }
    return Span(**values | changes)


def gateway_span(number: int, **changes: Any) -> Span:
    return span(number, scope=GATEWAY_SCOPE, **changes)


def otlp_request(number: int, *, first: int = 1, job_id: str | None = None) -> ExportTraceServiceRequest:
    """`number` model calls as an exporter sends them."""
    request = ExportTraceServiceRequest()
    batch = request.resource_spans.add()
    _put(batch.resource, "service.name", "agent")
    if job_id is not None:
        _put(batch.resource, "bailian.agentic_rl.job_id", job_id)
    scoped = batch.scope_spans.add()
    scoped.scope.name = "opentelemetry.util.genai.handler"
    for index in range(first, first + number):
        one = scoped.spans.add()
        one.trace_id = bytes.fromhex(TRACE)
        one.span_id = index.to_bytes(8, "big")
        one.name = "chat smollm2"
        one.start_time_unix_nano = 1_700_000_000_000_000_000 + index * 1_000_000
        one.end_time_unix_nano = one.start_time_unix_nano + 250_000_000
        one.status.code = 1
        _put(one, SPAN_KIND, "LLM")
        _put(one, ROLLOUT_ID, f"s1-0-r{index % 8}")
        _put(one, ATTEMPT_ID, "a1")
        _put(one, "gen_ai.request.model", "smollm2")
        _put(one, "gen_ai.usage.input_tokens", 120)
        _put(one, "gen_ai.usage.output_tokens", 64)
        _put(one, "gen_ai.response.id", f"chatcmpl-{index}")
        _put(
            one, "gen_ai.output.messages", '[{"role":"assistant","parts":[{"type":"text","content":"four"}]}]'
        )
    return request


def _put(holder: Any, key: str, value: str | int) -> None:
    pair = holder.attributes.add()
    pair.key = key
    if isinstance(value, int):
        pair.value.int_value = value
    else:
        pair.value.string_value = value
