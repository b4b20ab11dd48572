"""An attempt's captured calls -> spans, for agents that trace nothing: one a call, and the root of the
attempt's trace.

They are made from what was captured, without OpenTelemetry, and handed over when the attempt is sealed. Where
the agent traces its calls itself, these are left out of the tree by their response ids.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from strop.errors import StropError
from strop.inference.chat.request import ChatRequest
from strop.inference.gateway.attempts import Attempt
from strop.schema.span import (
    ATTEMPT_ID,
    GATEWAY_SCOPE,
    JOB_ID,
    ROLLOUT_ID,
    SPAN_KIND,
    Span,
    SpanKind,
    SpanStatus,
)
from strop.tracing.chat_span import chat_request, chat_result
from strop.tracing.ids import root_span_id_of, trace_id_of
from strop.tracing.tracing import is_on

SERVICE = "gateway"

Sink = Callable[[Sequence[Span]], None]

_log = logging.getLogger(__name__)


class SpanMaker:
    """Makes the spans of one job's attempts and hands them to `sink`, an attempt at a time.

    What the sink refuses is lost, and said once: a rollout does not fail for its spans.
    """

    def __init__(self, job_id: str, sink: Sink) -> None:
        self._job_id = job_id
        self._sink = sink
        self._on = is_on()
        self._said = False

    def call(
        self, attempt: Attempt, request: ChatRequest, reply: Mapping[str, Any], latency_s: float
    ) -> None:
        """Note a captured call; it has just ended."""
        if not self._on:
            return
        asked = request.model_dump(exclude_none=True)
        # The turn holds the whole conversation; here its newest message is enough.
        asked["messages"] = request.messages[-1:]
        attributes = {
            SPAN_KIND: SpanKind.LLM.value,
            **self._ids(attempt),
            **chat_request({**asked, "model": reply.get("model")}, "strop"),
            **chat_result(reply),
        }
        duration_ns = int(latency_s * 1e9)
        attempt.spans.append(
            Span(
                trace_id=self._trace_id(attempt),
                span_id=hashlib.sha256(
                    f"{self._trace_id(attempt)}/{len(attempt.spans)}".encode()
                ).hexdigest()[:16],
                parent_span_id=self._root_id(attempt),
                name=f"chat {reply.get('model')}",
                kind=SpanKind.LLM,
                status=SpanStatus.OK,
                start_ns=time.time_ns() - duration_ns,
                duration_ns=duration_ns,
                rollout_id=attempt.rollout_id,
                attempt_id=attempt.attempt_id,
                attributes={key: value for key, value in attributes.items() if value is not None},
                scope=GATEWAY_SCOPE,
                service=SERVICE,
            )
        )

    def sealed(self, attempt: Attempt) -> None:
        """Hand over what the attempt gave, below a root span from its opening until now."""
        if not self._on:
            return
        root = Span(
            trace_id=self._trace_id(attempt),
            span_id=self._root_id(attempt),
            parent_span_id=None,
            name="invoke_agentic_rl",
            kind=SpanKind.CHAIN,
            status=SpanStatus.UNSET,
            start_ns=attempt.opened_ns,
            duration_ns=time.time_ns() - attempt.opened_ns,
            rollout_id=attempt.rollout_id,
            attempt_id=attempt.attempt_id,
            attributes={
                SPAN_KIND: SpanKind.CHAIN.value,
                "operation.name": "invoke_agentic_rl",
                "gen_ai.user.query_root_flag": 1,
                **self._ids(attempt),
            },
            scope=GATEWAY_SCOPE,
            service=SERVICE,
        )
        spans, attempt.spans = attempt.spans, []
        try:
            self._sink([root, *spans])
        except StropError as error:
            if not self._said:
                self._said = True
                _log.warning("spans of the gateway are lost: %s", error)

    def _trace_id(self, attempt: Attempt) -> str:
        return trace_id_of(self._job_id, attempt.rollout_id, attempt.attempt_id)

    def _root_id(self, attempt: Attempt) -> str:
        return root_span_id_of(self._job_id, attempt.rollout_id, attempt.attempt_id)

    def _ids(self, attempt: Attempt) -> dict[str, str]:
        return {JOB_ID: self._job_id, ROLLOUT_ID: attempt.rollout_id, ATTEMPT_ID: attempt.attempt_id}
