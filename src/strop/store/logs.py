"""What processes print, a row a line: a job's trainer, engine and functions; function instances.

The level of a line is not stored but read from it, so levels and words are searched line by line, newest
first, within a time limit, and the result says how far the search came.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, func, insert, select, text
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.schema.job import LogLine
from strop.store.columns import ROW_ID, UtcTime, Written
from strop.store.tables import Base, Page, of_job, page_of


class LogRow(Base):
    __tablename__ = "logs"
    __table_args__ = (Index(None, "job_id", "id"), Index(None, "job_id", "component", "id"))

    id: Mapped[int] = mapped_column(ROW_ID, primary_key=True)
    job_id: Mapped[str] = mapped_column(Written, of_job())
    component: Mapped[str] = mapped_column(Written)
    stream: Mapped[str] = mapped_column(Written)
    text: Mapped[str] = mapped_column(Written)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    def line(self) -> LogLine:
        return LogLine(
            job_id=self.job_id,
            component=self.component,
            stream=self.stream,
            text=self.text,
            created_at=self.created_at,
        )


def record_lines(session: Session, lines: Sequence[LogLine]) -> None:
    if lines:
        session.connection().execute(insert(LogRow), [line.model_dump() for line in lines])


def log_tail(
    session: Session, job_id: str, *, component: str | None = None, lines: int = 100
) -> Page[LogLine]:
    """The last lines, oldest of them first; pass the page's `next` to `log_lines` to follow."""
    query = select(LogRow).where(LogRow.job_id == job_id).order_by(LogRow.id.desc()).limit(lines)
    if component is not None:
        query = query.where(LogRow.component == component)
    rows = session.scalars(query).all()[::-1]
    return page_of(rows, lines, item=LogRow.line, cursor=lambda row: row.id, after=None)


def log_lines(
    session: Session, job_id: str, *, component: str | None = None, after: str | None = None, limit: int = 500
) -> Page[LogLine]:
    """Oldest first; a page's `next` also follows a running job."""
    query = select(LogRow).where(LogRow.job_id == job_id).order_by(LogRow.id).limit(limit + 1)
    if component is not None:
        query = query.where(LogRow.component == component)
    if after is not None:
        query = query.where(LogRow.id > int(after))
    rows = session.scalars(query).all()
    return page_of(rows, limit, item=LogRow.line, cursor=lambda row: row.id, after=after)


def numbered_lines(session: Session, job_id: str, *, offset: int, limit: int) -> tuple[list[LogLine], int]:
    """`limit` lines from the `offset`th on, counted from 1, and how many there are."""
    total = session.scalar(select(func.count()).select_from(LogRow).where(LogRow.job_id == job_id)) or 0
    query = select(LogRow).where(LogRow.job_id == job_id).order_by(LogRow.id)
    rows = session.scalars(query.offset(offset - 1).limit(limit))
    return [row.line() for row in rows], total


SCAN_S = 0.06
"""Seconds that one search may look through lines."""

_SCAN_ROWS = 1000

LEVELS = ("error", "warning", "info")

_ERROR = re.compile(
    r"^(ERROR|CRITICAL|FATAL)\b|\b(ERROR|CRITICAL)\b[ :\]]|^Traceback \(most recent call last\)"
    r"|^\w*(\.\w+)*(Error|Exception|Interrupt)(:|$)"
)
_WARNING = re.compile(r"^WARN(ING)?\b|\bWARN(ING)?\b[ :\]]|Warning:")


def level_of(line: str) -> str:
    """`error`, `warning` or `info`, by how the line begins or what it names.

    >>> level_of("ValueError: no"), level_of("WARNING said once"), level_of("step 3 reward 0.4")
    ('error', 'warning', 'info')
    """
    if _ERROR.search(line):
        return "error"
    return "warning" if _WARNING.search(line) else "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    key: int
    component: str
    stream: str
    text: str
    created_at: datetime
    level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLines:
    """Oldest of them first. `before` continues towards older ones, None at the beginning of the log.
    `last` is the newest line that was looked at: what comes after it is new."""

    items: tuple[Line, ...]
    before: int | None
    last: int
    unfinished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLines:
    """`component` None is all of them; `word` in whatever case."""

    component: str | None = None
    levels: tuple[str, ...] = LEVELS
    word: str = ""

    def holds(self, line: Line) -> bool:
        return line.level in self.levels and self.word.lower() in line.text.lower()


def find_lines(
    session: Session, job_id: str, wanted: WantedLines, *, before: int | None = None, limit: int = 300
) -> FoundLines:
    """The newest lines that fit, or those before `before`."""
    give_up = time.monotonic() + SCAN_S
    kept: list[Line] = []
    last = 0
    at = before
    while True:
        rows = _read(session, job_id, wanted.component, before=at)
        last = last or (rows[0].key if rows else 0)
        for line in rows:
            at = line.key
            if wanted.holds(line):
                kept.append(line)
            if len(kept) == limit:
                return FoundLines(items=tuple(kept[::-1]), before=at, last=last)
        if len(rows) < _SCAN_ROWS:
            return FoundLines(items=tuple(kept[::-1]), before=None, last=last)
        if time.monotonic() > give_up:
            return FoundLines(items=tuple(kept[::-1]), before=at, last=last, unfinished=True)


def new_lines(session: Session, job_id: str, wanted: WantedLines, *, after: int) -> tuple[list[Line], int]:
    """Lines that came after, oldest first, and the newest key looked at."""
    query = _lines(job_id, wanted.component).where(LogRow.id > after).order_by(LogRow.id).limit(_SCAN_ROWS)
    lines = [_line(row) for row in session.execute(query)]
    return [line for line in lines if wanted.holds(line)], lines[-1].key if lines else after


def last_error(session: Session, job_id: str, *, context: int = 12) -> Sequence[Line]:
    """The newest error with the lines that belong to it: a traceback ends with the line that names it."""
    found = find_lines(session, job_id, WantedLines(levels=("error",)), limit=1)
    if not found.items:
        return ()
    line = found.items[0]
    around = _lines(job_id, line.component).where(LogRow.id <= line.key).order_by(LogRow.id.desc())
    block: list[Line] = []
    for row in session.execute(around.limit(60)):
        one = _line(row)
        block.append(one)
        if one.text.startswith("Traceback (most recent call last)"):
            return tuple(block[::-1])
    return tuple(block[:context:][::-1]) if line.text.startswith(" ") else (line,)


_COMPONENTS = text(
    """
    WITH RECURSIVE found(name) AS (
        SELECT (SELECT min(component) FROM logs WHERE job_id = :job)
        UNION ALL
        SELECT (SELECT min(component) FROM logs WHERE job_id = :job AND component > found.name)
        FROM found WHERE found.name IS NOT NULL
    )
    SELECT name FROM found WHERE name IS NOT NULL
    """
)


def log_components(session: Session, job_id: str) -> list[str]:
    """Which components have printed, sorted."""
    return list(session.scalars(_COMPONENTS, {"job": job_id}))


def _lines(job_id: str, component: str | None) -> Any:
    query = select(LogRow.id, LogRow.component, LogRow.stream, LogRow.text, LogRow.created_at).where(
        LogRow.job_id == job_id
    )
    return query if component is None else query.where(LogRow.component == component)


def _read(session: Session, job_id: str, component: str | None, *, before: int | None) -> list[Line]:
    query = _lines(job_id, component).order_by(LogRow.id.desc()).limit(_SCAN_ROWS)
    if before is not None:
        query = query.where(LogRow.id < before)
    return [_line(row) for row in session.execute(query)]


def _line(row: Any) -> Line:
    key, component, stream, words, created_at = row
    return Line(
        key=key,
        component=component,
        stream=stream,
        text=words,
        created_at=created_at,
        level=level_of(words),
    )


InstanceLine = tuple[datetime, str, str]
"""When, which stream, what."""


class InstanceLogRow(Base):
    __tablename__ = "instance_logs"
    __table_args__ = (Index(None, "instance_id", "id"),)

    id: Mapped[int] = mapped_column(ROW_ID, primary_key=True)
    instance_id: Mapped[str] = mapped_column(Written, ForeignKey("instances.instance_id", ondelete="CASCADE"))
    stream: Mapped[str] = mapped_column(Written)
    text: Mapped[str] = mapped_column(Written)
    created_at: Mapped[datetime] = mapped_column(UtcTime)


def record_instance_lines(session: Session, instance_id: str, lines: Sequence[InstanceLine]) -> None:
    rows = [
        {"instance_id": instance_id, "stream": stream, "text": text, "created_at": when}
        for when, stream, text in lines
    ]
    if rows:
        session.connection().execute(insert(InstanceLogRow), rows)


def instance_lines(
    session: Session,
    instance_id: str,
    *,
    page_no: int,
    page_size: int,
    since_s: float | None = None,
    until_s: float | None = None,
    keywords: Sequence[str] = (),
) -> tuple[list[InstanceLine], int]:
    """Page `page_no` (from 1), oldest first, of the lines with every keyword; and how many there are.
    Capitals make no difference.

    Units:
        since_s, until_s: seconds since 1970, both inclusive.
    """
    query = select(InstanceLogRow).where(InstanceLogRow.instance_id == instance_id)
    if since_s is not None:
        query = query.where(InstanceLogRow.created_at >= datetime.fromtimestamp(since_s, UTC))
    if until_s is not None:
        query = query.where(InstanceLogRow.created_at < datetime.fromtimestamp(until_s + 1, UTC))
    for word in keywords:
        query = query.where(InstanceLogRow.text.icontains(word, autoescape=True))
    total = session.scalar(select(func.count()).select_from(query.subquery())) or 0
    rows = session.scalars(
        query.order_by(InstanceLogRow.id).offset((page_no - 1) * page_size).limit(page_size)
    )
    return [(row.created_at, row.stream, row.text) for row in rows], total
