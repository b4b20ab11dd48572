"""Trajectory -> 1 or 0 for how it used its tools."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

from pydantic import Field

from strop.functions.presets.answer import Answer, Scored


def tool_use(
    answer: Answer,
    *,
    required: Annotated[Sequence[str], Field(description="tools that must be called")] = (),
    allowed: Annotated[
        Sequence[str] | None, Field(description="tools that may be called; any, where this is not set")
    ] = None,
    least: Annotated[int, Field(ge=0, description="calls at least")] = 0,
    most: Annotated[
        int | None, Field(ge=0, description="calls at most: else calling pays for itself")
    ] = None,
    same: Annotated[int, Field(ge=1, description="times that one call with equal arguments may stand")] = 1,
    valid_arguments: Annotated[bool, Field(description="arguments must be a JSON object")] = True,
) -> float:
    """1 for a trajectory whose tool calls are as wanted; how many there were is a metric.

    >>> call = {"function": {"name": "add", "arguments": '{"a": 1}'}}
    >>> tool_use(Answer(messages=[{"role": "assistant", "tool_calls": [call]}]), required=["add"])
    1.0
    """
    calls = [call for message in answer.messages for call in _calls(message)]
    names = [name for name, _, _ in calls]
    repeated = max(Counter((name, text) for name, text, _ in calls).values(), default=0)
    good = (
        set(required) <= set(names)
        and (allowed is None or set(names) <= set(allowed))
        and least <= len(calls) <= (len(calls) if most is None else most)
        and repeated <= same
        and (not valid_arguments or all(valid for _, _, valid in calls))
    )
    return Scored(float(good), calls=float(len(calls)))


def _calls(message: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """(name, arguments in one form, whether they are a JSON object) of each call in a model's message."""
    if message.get("role") != "assistant":
        return []
    found: list[tuple[str, str, bool]] = []
    for call in cast("list[Mapping[str, Any]]", message.get("tool_calls") or []):
        function = cast("Mapping[str, Any]", call.get("function") or {})
        raw = function.get("arguments")
        try:
            value: object = json.loads(raw) if isinstance(raw, str) else raw
            text = json.dumps(value, sort_keys=True)
        except (ValueError, RecursionError):
            value, text = None, str(raw)
        found.append((str(function.get("name")), text, isinstance(value, dict)))
    return found
