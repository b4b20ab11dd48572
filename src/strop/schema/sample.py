"""One dataset row, after validation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A prompt and what belongs to it.

    `row` counts from 1, as an editor shows the line. `sample_id` is the row's own `sample_id`, or made of the
    file's name and the row.
    """

    sample_id: str
    row: int
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    ground_truth: Any = None
    rollout_extra: dict[str, Any] = field(default_factory=dict[str, Any])
