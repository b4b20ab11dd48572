"""The declarative base that every table shares, and a page of rows.

The tables themselves stand with their queries: `jobs`, `metrics`, `trajectories`, `checkpoints`, `logs`,
`events`. A change to one needs a new file in `migrations/versions`; a contract test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import Double, ForeignKey, MetaData
from sqlalchemy.orm import DeclarativeBase

from strop.store.columns import Written

Item = TypeVar("Item")
Row = TypeVar("Row")


class Base(DeclarativeBase):
    type_annotation_map: ClassVar[dict[type, Any]] = {float: Double(), str: Written()}
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def of_job() -> ForeignKey:
    """What belongs to a job goes with it."""
    return ForeignKey("jobs.job_id", ondelete="CASCADE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """Some of a list. `next` is what to pass as `after` for what follows, now or later; None while nothing
    was read yet. `more` says whether something follows already."""

    items: tuple[Item, ...]
    next: str | None
    more: bool


def page_of(
    rows: Sequence[Row],
    limit: int,
    *,
    item: Callable[[Row], Item],
    cursor: Callable[[Row], object],
    after: str | None,
) -> Page[Item]:
    """Make a page of rows that were fetched with `limit + 1`."""
    kept = rows[:limit]
    last = str(cursor(kept[-1])) if kept else after
    return Page(items=tuple(item(row) for row in kept), next=last, more=len(rows) > limit)
