"""What function instances print, a row a line, newest found first by page, time and words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import ForeignKey, Index, func, insert, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.store.columns import ROW_ID, UtcTime, Written
from strop.store.tables import Base

Line = tuple[datetime, str, str]
"""When, which stream, what."""


class InstanceLogRow(Base):
    __tablename__ = "instance_logs"
    __table_args__ = (Index(None, "instance_id", "id"),)

    id: Mapped[int] = mapped_column(ROW_ID, primary_key=True)
    instance_id: Mapped[str] = mapped_column(Written, ForeignKey("instances.instance_id", ondelete="CASCADE"))
    stream: Mapped[str] = mapped_column(Written)
    text: Mapped[str] = mapped_column(Written)
    created_at: Mapped[datetime] = mapped_column(UtcTime)


def record_instance_lines(session: Session, instance_id: str, lines: Sequence[Line]) -> None:
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
) -> tuple[list[Line], int]:
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
