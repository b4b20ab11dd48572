"""Query -> a page: DashScope's `page_no` and `page_size`, bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query


@dataclass(frozen=True, slots=True)
class PageAsked:
    page_no: int
    page_size: int

    def filled(self, total: int, **items: list[dict[str, Any]]) -> dict[str, Any]:
        """What is told of the page: itself, of how many it is, and its items by their name."""
        return {"page_no": self.page_no, "page_size": self.page_size, "total": total, **items}


def page_asked(
    page_no: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    page_size: Annotated[int, Query(ge=1, le=100)] = 10,
) -> PageAsked:
    return PageAsked(page_no, page_size)


PageHere = Annotated[PageAsked, Depends(page_asked)]
