"""Spans: what ran inside a job's rollouts. Written in batches, read by rollout, by trace and by words.

A span that comes twice, as exporters send after a lost answer, is stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Index, Select, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.schema.span import Placed, Span, SpanKind, SpanStatus, arrange
from strop.store.columns import ROW_ID, PackedJson, Written
from strop.store.tables import Base, Page, of_job, page_of
from strop.store.trajectories import TrajectoryRow

PREVIEW_CHARS = 400
TREE_LIMIT = 5000
"""Spans of one rollout that a tree shows at most: the first ones."""

_SAID = (
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.output.messages",
    "output.value",
    "input.value",
)
"""Attributes that a search for words looks into, in the order in which a preview takes them."""


class SpanRow(Base):
    """`preview` is what a list shows of a span's content, and what a search for words looks into."""

    __tablename__ = "spans"
    __table_args__ = (
        Index(None, "job_id", "trace_id", "span_id", unique=True),
        Index(None, "job_id", "rollout_id"),
        Index(None, "job_id", "id"),
    )

    id: Mapped[int] = mapped_column(ROW_ID, primary_key=True)
    job_id: Mapped[str] = mapped_column(Written, of_job())
    trace_id: Mapped[str] = mapped_column(Written)
    span_id: Mapped[str] = mapped_column(Written)
    parent_span_id: Mapped[str | None] = mapped_column(Written)
    name: Mapped[str] = mapped_column(Written)
    kind: Mapped[str] = mapped_column(Written)
    status: Mapped[str] = mapped_column(Written)
    message: Mapped[str | None] = mapped_column(Written)
    start_ns: Mapped[int] = mapped_column(BigInteger)
    duration_ns: Mapped[int] = mapped_column(BigInteger)
    rollout_id: Mapped[str | None] = mapped_column(Written)
    sample_id: Mapped[str | None] = mapped_column(Written)
    attempt_id: Mapped[str | None] = mapped_column(Written)
    preview: Mapped[str] = mapped_column(Written)
    attributes: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    events: Mapped[list[dict[str, Any]]] = mapped_column(PackedJson)
    scope: Mapped[str] = mapped_column(Written)
    service: Mapped[str] = mapped_column(Written)

    def span(self) -> Span:
        return Span(
            trace_id=self.trace_id,
            span_id=self.span_id,
            parent_span_id=self.parent_span_id,
            name=self.name,
            kind=SpanKind(self.kind),
            status=SpanStatus(self.status),
            message=self.message,
            start_ns=self.start_ns,
            duration_ns=self.duration_ns,
            rollout_id=self.rollout_id,
            sample_id=self.sample_id,
            attempt_id=self.attempt_id,
            attributes=self.attributes,
            events=tuple(self.events),
            scope=self.scope,
            service=self.service,
        )


def record_spans(session: Session, job_id: str, spans: Sequence[Span]) -> set[tuple[str, str]]:
    """Write many at once; those already there are left as they are. Returns the trace and span ids of the new
    ones."""
    if not spans:
        return set()
    connection = session.connection()
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    keys = {(span.trace_id, span.span_id) for span in spans}
    newest = connection.scalar(select(func.max(SpanRow.id))) or 0
    # Many rows by one prepared statement, which gives nothing back, take half of what one that does takes.
    written = connection.execute(
        insert(SpanRow).on_conflict_do_nothing(), [_row(job_id, span) for span in spans]
    )
    if written.rowcount == len(keys):
        return keys
    # Who writes has the database to himself: whatever is newer was written just now.
    query = select(SpanRow.trace_id, SpanRow.span_id).where(SpanRow.id > newest)
    return {(trace_id, span_id) for trace_id, span_id in connection.execute(query)}


def list_spans(
    session: Session,
    job_id: str,
    *,
    rollout_id: str | None = None,
    attempt_id: str | None = None,
    sample_id: str | None = None,
    trace_id: str | None = None,
    kind: SpanKind | None = None,
    status: SpanStatus | None = None,
    name: str | None = None,
    text: str | None = None,
    min_duration_ms: float | None = None,
    after: str | None = None,
    limit: int = 100,
) -> Page[Span]:
    """In the order of arrival. `name` is a part of the span's name; `text` a part of its name, its error or
    the beginning of its content. Whole attributes are in every span of the page."""
    query = _matching(
        job_id,
        rollout_id=rollout_id,
        attempt_id=attempt_id,
        sample_id=sample_id,
        trace_id=trace_id,
        kind=kind,
        status=status,
    )
    if name is not None:
        query = query.where(SpanRow.name.icontains(name, autoescape=True))
    if text is not None:
        places = (SpanRow.name, SpanRow.message, SpanRow.preview)
        query = query.where(_any_contains(places, text))
    if min_duration_ms is not None:
        query = query.where(SpanRow.duration_ns >= int(min_duration_ms * 1e6))
    if after is not None:
        query = query.where(SpanRow.id > int(after))
    rows = session.scalars(query.order_by(SpanRow.id).limit(limit + 1)).all()
    return page_of(rows, limit, item=SpanRow.span, cursor=lambda row: row.id, after=after)


def span_tree(
    session: Session, job_id: str, rollout_id: str, *, attempt_id: str | None = None
) -> list[Placed]:
    """All spans of a rollout as trees, one a trace: its attempts, and what scored it and its group."""
    group = (
        select(TrajectoryRow.group_id)
        .where(TrajectoryRow.job_id == job_id, TrajectoryRow.rollout_id == rollout_id)
        .limit(1)
    )
    ids = [rollout_id, *session.scalars(group)]
    query = _matching(job_id, attempt_id=attempt_id).where(SpanRow.rollout_id.in_(ids))
    rows = session.scalars(query.order_by(SpanRow.id).limit(TREE_LIMIT)).all()
    return arrange([row.span() for row in rows])


def preview(span: Span) -> str:
    """The beginning of what went in and came out, on one line."""
    said = [span.attributes[key] for key in _SAID if key in span.attributes]
    text = " → ".join(str(one)[:PREVIEW_CHARS] for one in said)
    return " ".join(text[:PREVIEW_CHARS].split())


def _matching(job_id: str, **equal: object) -> Select[SpanRow]:
    query = select(SpanRow).where(SpanRow.job_id == job_id)
    for column, value in equal.items():
        if value is not None:
            query = query.where(getattr(SpanRow, column) == value)
    return query


def _any_contains(places: Sequence[Any], text: str) -> Any:
    first, *others = (place.icontains(text, autoescape=True) for place in places)
    for other in others:
        first = first | other
    return first


def _row(job_id: str, span: Span) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_span_id,
        "name": span.name,
        "kind": span.kind.value,
        "status": span.status.value,
        "message": span.message,
        "start_ns": span.start_ns,
        "duration_ns": span.duration_ns,
        "rollout_id": span.rollout_id,
        "sample_id": span.sample_id,
        "attempt_id": span.attempt_id,
        "preview": preview(span),
        "attributes": span.attributes,
        "events": list(span.events),
        "scope": span.scope,
        "service": span.service,
    }
