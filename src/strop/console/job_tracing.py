"""A trajectory's Tracing sub-tab: its spans as a tree and a waterfall, what scored it among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from strop.console.job_frame import job_here, job_page
from strop.console.job_trajectories import Key
from strop.console.requests import CallerHere, ServicesHere
from strop.console.words import pretty
from strop.schema.span import Placed, Span, SpanKind, SpanStatus
from strop.store.spans import span_tree
from strop.store.trajectory_lists import get_by_key

router = APIRouter()

LABELS = {
    SpanKind.ROLLOUT: ("ENTRY:ROLLOUT", "entry"),
    SpanKind.REWARD: ("REWARD", "reward"),
    SpanKind.GROUP_REWARD: ("GROUP_REWARD", "reward"),
    SpanKind.LLM: ("LLM", "llm"),
    SpanKind.TOOL: ("TOOL", "tool"),
    SpanKind.CHAIN: ("CHAIN", "entry"),
    SpanKind.OTHER: ("", "other"),
}
_SHOWN = (
    ("gen_ai.input.messages", "input"),
    ("input.value", "input"),
    ("gen_ai.tool.call.arguments", "arguments"),
    ("gen_ai.tool.call.result", "result"),
    ("gen_ai.output.messages", "output"),
    ("output.value", "output"),
)
"""What a span holds that a person wants first; the rest stands below it."""

DEEPEST = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A span in the table. `x` and `width` are per cent of its trace."""

    span: Span
    label: str
    css: str
    depth: int
    x: float
    width: float
    said: Sequence[tuple[str, str]]
    rest: str

    @property
    def failed(self) -> bool:
        return self.span.status is SpanStatus.ERROR

    @property
    def seconds(self) -> float:
        return self.span.duration_ns / 1e9


@router.get("/jobs/{job_id}/trajectories/{key}/tracing")
def tracing_page(
    request: Request, services: ServicesHere, caller: CallerHere, job_id: str, key: Key
) -> Response:
    with services.database.read() as session:
        here = job_here(session, job_id, caller)
        brief, _ = get_by_key(session, job_id, key)
        placed = span_tree(session, job_id, brief.rollout_id)
    return job_page(request, services, here, "tracing", brief=brief, traces=traces_of(placed))


def traces_of(placed: Sequence[Placed]) -> list[list[Row]]:
    """One table a trace, in the tree's order."""
    by_trace: dict[str, list[Placed]] = {}
    for one in placed:
        by_trace.setdefault(one.span.trace_id, []).append(one)
    return [_rows(members) for members in by_trace.values()]


def _rows(members: Sequence[Placed]) -> list[Row]:
    whole = max(1, max(one.offset_ns + one.span.duration_ns for one in members))
    return [_row(one, whole) for one in members]


def _row(one: Placed, whole_ns: int) -> Row:
    label, css = LABELS[one.span.kind]
    said, rest = _content(one.span.attributes)
    x = min(99.5, 100 * one.offset_ns / whole_ns)
    width = min(100 - x, max(0.5, 100 * one.span.duration_ns / whole_ns))
    return Row(
        span=one.span,
        label=label,
        css=css,
        depth=min(one.depth, DEEPEST),
        x=round(x, 3),
        width=round(width, 3),
        said=said,
        rest=rest,
    )


def _content(attributes: Mapping[str, Any]) -> tuple[list[tuple[str, str]], str]:
    said = [(name, pretty(attributes[key])) for key, name in _SHOWN if key in attributes]
    shown = {key for key, _ in _SHOWN}
    others = {key: value for key, value in attributes.items() if key not in shown}
    return said, pretty(others) if others else ""
