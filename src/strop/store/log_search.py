"""Log lines as a page asks for them: newest first, by component, level and word.

A level is not stored; it is read from the line, so levels and words are looked for line by line, newest
first, within a bound, and the page says how far that came.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from strop.store.logs import LogRow

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
