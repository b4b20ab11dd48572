"""Query -> a page: DashScope's `page_no` and `page_size`, bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query


@dataclass(frozen=True, slots=True)
class PageRequest:
    page_no: int
    page_size: int

    def filled(self, total: int, **items: list[dict[str, Any]]) -> dict[str, Any]:
        """The page's number and size, how many items there are in all, and its own by their name."""
        return {"page_no": self.page_no, "page_size": self.page_size, "total": total, **items}


def page_request(
    page_no: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    page_size: Annotated[int, Query(ge=1, le=100)] = 10,
) -> PageRequest:
    return PageRequest(page_no, page_size)


PageHere = Annotated[PageRequest, Depends(page_request)]
