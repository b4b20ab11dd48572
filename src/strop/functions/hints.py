"""A test input -> what of it no function will see, or will see elsewhere than it was meant.

For `strop functions test`. Unknown keys pass by contract, so nothing here is an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import BaseModel

from strop.schema.function import INPUT_OF, AgentOutput, FunctionType, ModelResource, RequestMetadata

_NESTED: dict[str, type[BaseModel]] = {
    "agent_output": AgentOutput,
    "agent_outputs": AgentOutput,
    "model_resource": ModelResource,
    "request_metadata": RequestMetadata,
}
_OF_THE_PAGE = {"request_metadata": ("protocol", "system_prompt")}
"""Keys that the development guide's own examples have and nobody reads."""
_ELSEWHERE = ("ground_truth", "messages", "agent_output", "agent_outputs")


def input_hints(func_type: FunctionType, values: Mapping[str, Any]) -> list[str]:
    """One sentence for each key that looks like a mistake.

    >>> input_hints(FunctionType.REWARD, {"ground_thruth": 4, "agent_output": {}})
    ["ground_thruth: no declared field; functions see it as an extra one. Did you mean 'ground_truth'?"]
    """
    fields = INPUT_OF[func_type].model_fields
    hints = [
        f"{key}: no declared field; functions see it as an extra one. Did you mean {near!r}?"
        for key in values
        if key not in fields and (near := _near(key, [name for name in fields if name not in values]))
    ]
    for key, model in _NESTED.items():
        for place, inner in _sections(key, values.get(key)):
            hints += _nested_hints(place, inner, model, _OF_THE_PAGE.get(key, ()))
            hints += _extra_hints(f"{place}.rollout_extra", inner.get("rollout_extra"), fields, values)
    return hints + _extra_hints("rollout_extra", values.get("rollout_extra"), fields, values)


def missing_input(func_type: FunctionType, values: Mapping[str, Any]) -> str | None:
    """What every run gives a function of this type and this input has not: a failure may come of that alone.

    >>> missing_input(FunctionType.REWARD, {"agent_output": {"messages": []}})
    'agent_output.messages'
    >>> missing_input(FunctionType.GROUP_REWARD, {"agent_outputs": [{"messages": [{}]}, {}]})
    'agent_outputs[1].messages'
    """
    match func_type:
        case FunctionType.ROLLOUT:
            return None if values.get("messages") else "messages"
        case FunctionType.REWARD:
            return None if _has_messages(values.get("agent_output")) else "agent_output.messages"
        case FunctionType.GROUP_REWARD:
            outputs = values.get("agent_outputs")
            if not isinstance(outputs, list) or not outputs:
                return "agent_outputs"
            missing = (
                index for index, one in enumerate(cast("list[Any]", outputs)) if not _has_messages(one)
            )
            return next((f"agent_outputs[{index}].messages" for index in missing), None)


def _has_messages(output: object) -> bool:
    return isinstance(output, Mapping) and bool(cast("Mapping[str, Any]", output).get("messages"))


def _sections(key: str, value: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        yield key, cast("Mapping[str, Any]", value)
    elif isinstance(value, list):
        for index, one in enumerate(cast("list[Any]", value)):
            yield from _sections(f"{key}[{index}]", one)


def _nested_hints(
    place: str, inner: Mapping[str, Any], model: type[BaseModel], usual: tuple[str, ...]
) -> Iterator[str]:
    for key in inner:
        if key in model.model_fields or key in usual:
            continue
        near = _near(key, [name for name in model.model_fields if name not in inner])
        yield f"{place}.{key}: dropped, no function sees it." + (f" Did you mean {near!r}?" if near else "")


def _extra_hints(
    place: str, extra: object, fields: Mapping[str, Any], values: Mapping[str, Any]
) -> list[str]:
    """In a dataset row the answer may stand in `rollout_extra`; a call has a field for it."""
    if not isinstance(extra, Mapping):
        return []
    return [
        f"{place}.{key}: is not the input's {key}; to have it there, write {key} at the top."
        for key in _ELSEWHERE
        if key in extra and key in fields and values.get(key) is None
    ]


def _near(key: str, names: list[str]) -> str | None:
    return next(iter(difflib.get_close_matches(key, names, n=1, cutoff=0.75)), None)
