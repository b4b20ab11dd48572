"""What ran inside a rollout, piece by piece: spans, and the tree they make.

Names and keys are those of OpenTelemetry's GenAI conventions and of DashScope's SDK, so that spans of either
mean the same here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

SPAN_KIND = "gen_ai.span.kind"
RESPONSE_ID = "gen_ai.response.id"

ROLLOUT_ID = "bailian.agentic_rl.rollout_id"
SAMPLE_ID = "bailian.agentic_rl.sample_id"
ATTEMPT_ID = "bailian.agentic_rl.attempt_id"
JOB_ID = "bailian.agentic_rl.job_id"
IDS = (JOB_ID, ROLLOUT_ID, SAMPLE_ID, ATTEMPT_ID)
"""Attributes of every span of a rollout; also the keys of its W3C baggage."""

GATEWAY_SCOPE = "strop.inference.gateway"
"""Who makes the spans that come by themselves: for agents that trace nothing."""


CALLER_SCOPE = "strop.workers"
"""Who makes the spans of a function that makes none: whoever calls it."""


class SpanKind(StrEnum):
    """What a span is of; `CHAIN` holds a rollout together, `OTHER` is whatever else was instrumented."""

    CHAIN = "CHAIN"
    ROLLOUT = "ROLLOUT"
    REWARD = "REWARD"
    GROUP_REWARD = "GROUP_REWARD"
    LLM = "LLM"
    TOOL = "TOOL"
    OTHER = "OTHER"


class SpanStatus(StrEnum):
    UNSET = "unset"
    OK = "ok"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One timed piece of work. `message` is the error's text; `service` who sent it.

    Units:
        start_ns: nanoseconds since 1970. duration_ns: nanoseconds.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: SpanKind
    status: SpanStatus
    start_ns: int
    duration_ns: int
    message: str | None = None
    rollout_id: str | None = None
    sample_id: str | None = None
    attempt_id: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    events: tuple[dict[str, Any], ...] = ()
    scope: str = ""
    service: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A span where it stands in its tree. A parent that was never sent counts as none.

    Units:
        offset_ns: nanoseconds after the first span of its trace.
    """

    span: Span
    depth: int
    offset_ns: int


def arrange(spans: Sequence[Span]) -> list[Placed]:
    """Every trace as a tree, depth first, siblings and traces by their start.

    A model call that the agent traced itself is there once: the gateway's own span of it is left out. Model
    and tool calls that stand beside their rollout's span are put below it. Spans whose parents make a ring
    stand at the top, at the end.
    """
    kept = sorted(_below_rollouts(_without_twins(spans)), key=lambda one: (one.start_ns, -one.duration_ns))
    traces: dict[str, list[Span]] = {}
    for span in kept:
        traces.setdefault(span.trace_id, []).append(span)
    return [placed for members in traces.values() for placed in _tree(members)]


def _tree(members: Sequence[Span]) -> list[Placed]:
    """One trace; `members` are sorted by their start."""
    known = {span.span_id for span in members}
    children: defaultdict[str | None, list[Span]] = defaultdict(list)
    for span in members:
        children[span.parent_span_id if span.parent_span_id in known else None].append(span)
    placed: list[Placed] = []

    def place(roots: list[Span]) -> None:
        stack = [(span, 0) for span in reversed(roots)]
        while stack:
            span, depth = stack.pop()
            placed.append(Placed(span=span, depth=depth, offset_ns=span.start_ns - members[0].start_ns))
            stack += [(child, depth + 1) for child in reversed(children.pop(span.span_id, []))]

    place(children.pop(None, []))
    in_rings = [span for siblings in children.values() for span in siblings]
    children.clear()
    place(in_rings)
    return placed


def _below_rollouts(spans: Sequence[Span]) -> list[Span]:
    """The gateway knows an attempt's root, not the span of its rollout: model calls are put below that."""
    rollouts = {(span.trace_id, span.parent_span_id): span for span in spans if span.kind is SpanKind.ROLLOUT}

    def placed(span: Span) -> Span:
        over = rollouts.get((span.trace_id, span.parent_span_id))
        if over is None or span.kind not in (SpanKind.LLM, SpanKind.TOOL):
            return span
        return replace(span, parent_span_id=over.span_id)

    return [placed(span) for span in spans]


def _without_twins(spans: Sequence[Span]) -> list[Span]:
    traced = {
        span.attributes.get(RESPONSE_ID)
        for span in spans
        if span.kind is SpanKind.LLM and span.scope != GATEWAY_SCOPE
    } - {None}
    return [
        span
        for span in spans
        if span.scope != GATEWAY_SCOPE or span.attributes.get(RESPONSE_ID) not in traced
    ]
