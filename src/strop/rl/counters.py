"""Counters that only grow -> what they counted in one step. Used by `rl.loop` alone.

Machines count since they were made; a curve shows a step. A validation in between belongs to no step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

COUNTED = (
    "trace/rerendered_prompts",
    "trace/tool_parse_errors",
    "trace/refused_calls",
    "trace/aborted_calls",
    "trace/replayed_calls",
)
"""Counters that are metrics themselves, under the same name."""

PREFIX_HITS, PREFILLED = "prefix_hits", "prefilled"
"""Prompt tokens found in the engine's cache, and computed: their share of hits is a metric."""


def counted_since(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """The metrics of the time between two readings; machines that count nothing give none."""
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    values = {name: grown[name] for name in COUNTED if name in grown}
    if PREFIX_HITS in grown and PREFILLED in grown:
        prompt_tokens = grown[PREFIX_HITS] + grown[PREFILLED]
        values["perf/prefix_hit_rate"] = grown[PREFIX_HITS] / prompt_tokens if prompt_tokens else math.nan
    return values
