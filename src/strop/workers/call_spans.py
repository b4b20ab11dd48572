"""Calls of functions that trace nothing -> their ENTRY and REWARD spans, made where the calls are sent from.

A function that is decorated makes its own, in its worker; each worker says which kind it holds. These cost
neither OpenTelemetry nor a request: the trainer writes them straight into its job's record.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence

from strop.errors import StropError
from strop.schema.function import FunctionInput, FunctionType, RequestMetadata
from strop.schema.reply import FunctionReply
from strop.schema.span import CALLER_SCOPE, SPAN_KIND, Span, SpanKind, SpanStatus
from strop.tracing.content import json_text
from strop.tracing.ids import ids_of, root_span_id_of, trace_id_of
from strop.tracing.tracing import captures_content

SERVICE = "trainer"

Sink = Callable[[Sequence[Span]], None]

_KINDS = {
    FunctionType.ROLLOUT: (SpanKind.ROLLOUT, "invoke_rollout"),
    FunctionType.REWARD: (SpanKind.REWARD, "invoke_reward"),
    FunctionType.GROUP_REWARD: (SpanKind.GROUP_REWARD, "invoke_reward"),
}
_MAX_MESSAGE_CHARS = 4096

_log = logging.getLogger(__name__)


class CallSpans:
    """Hands the spans of one function's calls to `sink`. What it refuses is lost, and logged once: no call
    fails because of its span.

    `name` is the function's.
    """

    def __init__(self, name: str, sink: Sink) -> None:
        self._name = name
        self._sink = sink
        self._said = False

    def put(self, payload: FunctionInput, reply: FunctionReply, *, start_ns: int, duration_ns: int) -> None:
        """Note a call that has ended; one that belongs to no rollout has no place in a trace."""
        if payload.request_metadata is None:
            return
        try:
            self._sink([self._span(payload, payload.request_metadata, reply, start_ns, duration_ns)])
        except StropError as error:
            if not self._said:
                self._said = True
                _log.warning("spans of function %r are lost: %s", self._name, error)

    def _span(
        self,
        payload: FunctionInput,
        of: RequestMetadata,
        reply: FunctionReply,
        start_ns: int,
        duration_ns: int,
    ) -> Span:
        kind, verb = _KINDS[payload.func_type]
        trace_id = trace_id_of(of.job_id, of.rollout_id, of.attempt_id)
        name = f"{verb} {self._name}"
        attributes = {
            SPAN_KIND: kind.value,
            **ids_of(payload),
            "operation.name": verb,
            "request_id": of.rollout_id,
            **_result(reply, duration_ns),
        }
        return Span(
            trace_id=trace_id,
            span_id=hashlib.sha256(f"{trace_id}/{name}/{start_ns}".encode()).hexdigest()[:16],
            parent_span_id=root_span_id_of(of.job_id, of.rollout_id, of.attempt_id),
            name=name,
            kind=kind,
            status=SpanStatus.OK if reply.error is None else SpanStatus.ERROR,
            message=None if reply.error is None else reply.error[:_MAX_MESSAGE_CHARS],
            start_ns=start_ns,
            duration_ns=duration_ns,
            rollout_id=of.rollout_id,
            sample_id=of.sample_id,
            attempt_id=of.attempt_id,
            attributes={key: value for key, value in attributes.items() if value is not None},
            scope=CALLER_SCOPE,
            service=SERVICE,
        )


def _result(reply: FunctionReply, duration_ns: int) -> dict[str, object]:
    """What a decorated function's span says of its result. Messages are left to the trajectory."""
    told: dict[str, object] = {
        "agentic_rl.result.latency_s": duration_ns / 1e9,
        "error.type": reply.error_code,
    }
    if reply.output is None:
        return told
    told["agentic_rl.result.status"] = reply.output.status.value
    reward = getattr(reply.output, "reward", None)
    if reward is None:
        return told
    told["agentic_rl.result.reward_score"] = getattr(reward, "reward_score", None)
    told["output.value"] = json_text(reward) if captures_content() else None
    return told
