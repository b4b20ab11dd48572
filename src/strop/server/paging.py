"""Query -> a page: DashScope's `page_no` and `page_size`, bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query


@dataclass(frozen=True, slots=True)
class PageAsked:
    page_no: int
    page_size: int


def page_asked(
    page_no: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    page_size: Annotated[int, Query(ge=1, le=100)] = 10,
) -> PageAsked:
    return PageAsked(page_no, page_size)


PageHere = Annotated[PageAsked, Depends(page_asked)]
