"""Ark's `reward_fn(context, sample, completions)` -> a group reward of ours, and Ark's HTTP bodies.

One call scores the whole group of a sample. Completions are made so that both shapes that Ark's documents use
can be read: `completion["messages"][0]["content"]` and `completion["messages"]["content"]`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from strop.functions.callables import method_of, name_of
from strop.functions.processor import AbstractGroupRewardProcessor, AbstractProcessor
from strop.functions.rl_types import RewardFunctionResult, RewardStatus
from strop.schema.function import (
    DISCARD,
    ENDS_JOB,
    AgentOutput,
    GroupReward,
    GroupRewardInput,
    GroupRewardOutput,
    Reward,
    TaskStatus,
)

PARAMETERS = ("context", "sample", "completions")
_CODES = {RewardStatus.FAILURE: ENDS_JOB, RewardStatus.RETRY: "retry", RewardStatus.DISCARD: DISCARD}
_JOB_ID = "model_customization_job_id"
_JOB_ID_MISSPELT = "modle_customization_job_id"
"""One of Ark's pages writes it so."""

Fields = dict[str, Any]


class Messages(list[Fields]):
    """The messages of a completion; a name reads from the last one that the model wrote."""

    def __getitem__(self, key: Any) -> Any:
        return self._last()[key] if isinstance(key, str) else list[Any].__getitem__(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        return self._last().get(key, default)

    def _last(self) -> Fields:
        written = [message for message in self if message.get("role", "assistant") == "assistant"]
        return written[-1] if written else {}


class Context(dict[str, Any]):
    """Ark's context, by both spellings of the job's id."""

    def __missing__(self, key: str) -> Any:
        other = {_JOB_ID_MISSPELT: _JOB_ID, _JOB_ID: _JOB_ID_MISSPELT}.get(key)
        if other is not None and other in self:
            return self[other]
        raise KeyError(key)


def is_ark(found: object) -> bool:
    """Whether this is a `reward_fn`, by its three parameters."""
    if isinstance(found, type) or not callable(found):
        return False
    try:
        names = tuple(inspect.signature(found).parameters)
    except (TypeError, ValueError):
        return False
    return names[:3] == PARAMETERS


def hosted_ark(function: Callable[..., Any]) -> type[AbstractProcessor[Any, Any]]:
    """A class of ours that calls it."""

    members = {
        "process": method_of(
            function,
            lambda input: _arguments(_body(input)),
            lambda result, input: _output(result, _body(input), input),
        ),
        "code_of_raise": ENDS_JOB,  # to Ark, an exception is a failure
        "speaks_ark": True,
        "__module__": function.__module__,
    }
    return type(name_of(function), (AbstractGroupRewardProcessor,), members)


def is_ark_body(values: object) -> bool:
    """Whether a request is Ark's: bare, or in the envelope of its console's test page."""
    body = _opened(values)
    return isinstance(body, dict) and "completions" in body and "agent_outputs" not in body


def input_of_body(values: object) -> Fields:
    """Ark's request as a group reward's input.

    Raises:
        ValueError: no list of completions, or no sample.
    """
    body = cast("Fields", _opened(values))
    sample, completions = body.get("sample"), body["completions"]
    if not isinstance(sample, dict):
        raise ValueError("sample: expected an object with messages and extra")
    if not isinstance(completions, list):
        raise ValueError("completions: expected a list")
    for index, one in enumerate(cast("list[Any]", completions)):
        if not isinstance(one, dict) or not isinstance(cast("Fields", one).get("messages"), list | dict):
            raise ValueError(f"completions[{index}].messages: expected a list of messages")
    outputs = [{"messages": list(_messages(one))} for one in cast("list[Fields]", completions)]
    return {"agent_outputs": outputs, "ark_body": body}


def reply_of_output(output: Fields) -> Fields:
    """What Ark's page shows as the answer, from a group reward's output to a request of Ark's."""
    return cast("Fields", output["ark_reply"])


def _opened(values: object) -> object:
    """The body inside `{"data": ..., "method": ..., "path": ..., "headers": ...}`."""
    if isinstance(values, dict) and isinstance(cast("Fields", values).get("data"), dict):
        return cast("object", cast("Fields", values)["data"])
    return cast("object", values)


def _body(input: GroupRewardInput) -> Fields:
    extra = input.model_extra or {}
    if "ark_body" in extra:
        return cast("Fields", extra["ark_body"])
    sample: Fields = dict(extra.get("sample") or {})
    prompt: list[Fields] = sample.get("messages") or []
    told: list[Fields] = extra.get("completions") or [{} for _ in input.agent_outputs]
    job_id = input.request_metadata.job_id if input.request_metadata else ""
    return {
        "context": {_JOB_ID: job_id, "is_mock": False, **(extra.get("context") or {})},
        "sample": {"tools": [], "extra": {}, **sample},
        "completions": [
            {**one, "messages": _answer(output, prompt)}
            for output, one in zip(input.agent_outputs, told, strict=True)
        ],
    }


def _answer(output: AgentOutput, prompt: list[Fields]) -> list[Fields]:
    """What came after the prompt; all of it where an agent began otherwise."""
    messages = output.messages or []
    return messages[len(prompt) :] if messages[: len(prompt)] == prompt else messages


def _arguments(body: Fields) -> tuple[Context, Fields, list[Fields]]:
    completions = cast("list[Fields]", body["completions"])
    told = [{**one, "messages": _messages(one)} for one in completions]
    return Context(body.get("context") or {}), cast("Fields", body["sample"]), told


def _messages(completion: Fields) -> Messages:
    given: Any = completion["messages"]
    return Messages([cast("Fields", given)] if isinstance(given, dict) else given)


def _output(result: Any, body: Fields, input: GroupRewardInput) -> GroupRewardOutput:
    told = _told(result)
    status = RewardStatus(str(told["status"]))
    metrics: dict[str, float] = dict(told.get("metrics") or {})
    num_asked = len(cast("list[Any]", body["completions"]))
    rewards = list(told.get("rewards") or [])
    if status is RewardStatus.SUCCESS and len(rewards) != num_asked:
        raise ValueError(f"reward_fn gave {len(rewards)} rewards for {num_asked} completions")
    reply: Fields = {"rewards": rewards, "metrics": metrics, "status": status.value}
    if told.get("error"):
        reply["error"] = str(told["error"])
    more: Fields = {"ark_reply": reply} if "ark_body" in (input.model_extra or {}) else {}
    if status is not RewardStatus.SUCCESS:
        error = reply.get("error") or f"reward_fn returned status {status.value} without an error text"
        more |= {"status": TaskStatus.FAILED, "error": error, "error_code": _CODES[status]}
        return GroupRewardOutput(reward=GroupReward(rewards=[]), **more)
    scored = [Reward(reward_score=one, reward_metrics=metrics or None) for one in rewards]
    return GroupRewardOutput(reward=GroupReward(rewards=scored), **more)


def _told(result: Any) -> Mapping[str, Any]:
    """A result as plain fields: Ark's class, any other that has its fields, or a dict."""
    names = ("rewards", "metrics", "status", "error")
    if isinstance(result, Mapping):
        told = cast("Mapping[str, Any]", result)
    elif isinstance(result, RewardFunctionResult) or hasattr(result, "rewards"):
        told = {name: getattr(result, name, None) for name in names}
    else:
        raise ValueError(f"reward_fn returned {type(result).__name__}; expected RewardFunctionResult")
    status = getattr(told.get("status"), "value", told.get("status")) or RewardStatus.SUCCESS
    known = [one.value for one in RewardStatus]
    if status not in known:
        raise ValueError(f"reward_fn returned the status {status!r}; expected one of {', '.join(known)}")
    metrics: dict[str, Any] = told.get("metrics") or {}
    for name, value in metrics.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"reward_fn returned the metric {name!r} = {value!r}; expected a finite number")
    return {**told, "status": status}
