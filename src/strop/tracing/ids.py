"""Which attempt at which rollout a call belongs to -> W3C baggage, so that every span below it says so.

A function worker opens one around each call; `observe_processor` does where it runs elsewhere.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from strop.schema.span import ATTEMPT_ID, JOB_ID, ROLLOUT_ID, SAMPLE_ID
from strop.tracing.recording import breaker
from strop.tracing.tracing import tracer

if TYPE_CHECKING:
    from opentelemetry.context import Context

_OF_FIELD = {"job_id": JOB_ID, "rollout_id": ROLLOUT_ID, "sample_id": SAMPLE_ID, "attempt_id": ATTEMPT_ID}


def ids_of(payload: object) -> dict[str, str]:
    """The ids in an input's `request_metadata`, else in itself, by their attribute names."""
    metadata = getattr(payload, "request_metadata", None)
    found: dict[str, str] = {}
    for field, key in _OF_FIELD.items():
        for holder in (metadata, payload):
            value = holder.get(field) if isinstance(holder, dict) else getattr(holder, field, None)  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
            if isinstance(value, str) and value:
                found[key] = value
                break
    return found


def with_ids(ids: Mapping[str, str], context: Context | None = None) -> Context:
    """The context with these ids as baggage. Ids that travel in it already stand."""
    from opentelemetry import baggage

    there = baggage.get_all(context)
    for key, value in ids.items():
        if key not in there:
            context = baggage.set_baggage(key, value, context)
    if context is None:
        from opentelemetry.context import get_current

        return get_current()
    return context


@contextmanager
def call_of(payload: object, headers: Mapping[str, str]) -> Generator[None]:
    """Around one call of a function: continues its trace and carries its ids. Costs nothing when nothing
    traces."""
    token: Any = None
    try:
        # Whoever traces has loaded OpenTelemetry before its first call; for others this costs nothing.
        if "opentelemetry" in sys.modules and breaker.allows() and tracer() is not None:
            from opentelemetry import context as contexts
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

            carried = TraceContextTextMapPropagator().extract(dict(headers))
            token = contexts.attach(with_ids(ids_of(payload), carried))
    except Exception as error:  # noqa: BLE001  a span must not fail the call it is of
        breaker.failed(error)
    try:
        yield
    finally:
        if token is not None:
            from opentelemetry import context as contexts

            contexts.detach(token)


def trace_id_of(job_id: str, rollout_id: str, attempt_id: str) -> str:
    """One trace an attempt: its rollout, its model calls and what scores it, from whatever process.

    >>> len(trace_id_of("ft-1", "s1-0-r0", "a1")), trace_id_of("j", "r", "a") == trace_id_of("j", "r", "b")
    (32, False)
    """
    return _digest("trace", job_id, rollout_id, attempt_id)[:32]


def root_span_id_of(job_id: str, rollout_id: str, attempt_id: str) -> str:
    """The span at the top of that trace."""
    return _digest("root", job_id, rollout_id, attempt_id)[:16]


def traceparent_of(job_id: str, rollout_id: str, attempt_id: str) -> str:
    """What the trainer sends with a call, in W3C's form."""
    trace_id, span_id = (make(job_id, rollout_id, attempt_id) for make in (trace_id_of, root_span_id_of))
    return f"00-{trace_id}-{span_id}-01"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
