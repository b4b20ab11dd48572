"""A recorded trajectory -> the conversation as a person reads it: who said what, what tools gave back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from strop.console.words import pretty
from strop.schema.trajectory import Trajectory, Turn
from strop.store.trajectory_lists import functions_called


@dataclass(slots=True, kw_only=True)
class Call:
    """A tool that the model called. `result` None: nothing came back."""

    name: str
    arguments: str
    call_id: str
    result: str | None = None
    result_index: int | None = None


@dataclass(slots=True, kw_only=True)
class Said:
    """One message. `turn` is the sampled turn it came from; None for what was given."""

    role: str
    text: str
    calls: list[Call] = field(default_factory=list[Call])
    name: str = ""
    turn: Turn | None = None


def conversation(one: Trajectory) -> list[Said]:
    """The messages in order; results of tools stand with their calls, those of unknown calls alone."""
    messages = list(one.messages) or _of_turns(one.turns)
    said = [_said(message) for message in messages]
    _join_results(said, messages)
    _join_turns(said, one.turns)
    return [item for item in said if item.role != "joined"]


def text_of(content: Any) -> str:
    """
    >>> text_of([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}])
    'a\\n[image_url]'
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part for part in cast("list[Any]", content))
        return "\n".join(_part(part) for part in parts)
    return pretty(content)


def _part(part: Any) -> str:
    if isinstance(part, Mapping):
        found = cast("Mapping[str, Any]", part)
        return str(found["text"]) if "text" in found else f"[{found.get('type', 'part')}]"
    return str(part)


def _of_turns(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Of a rollout that failed before it gave its messages back."""
    return [*turns[-1].messages, turns[-1].response] if turns else []


def _said(message: Mapping[str, Any]) -> Said:
    calls: list[Call] = []
    for call in message.get("tool_calls") or ():
        function: Mapping[str, Any] = call.get("function") or {}
        arguments = pretty(function.get("arguments", ""))
        calls.append(
            Call(name=str(function.get("name", "?")), arguments=arguments, call_id=str(call.get("id", "")))
        )
    text = text_of(message.get("content"))
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str) and thought:
        text = f"{thought}\n\n{text}"
    return Said(
        role=str(message.get("role", "?")), text=text, calls=calls, name=str(message.get("name") or "")
    )


def _join_results(said: Sequence[Said], messages: Sequence[Mapping[str, Any]]) -> None:
    waiting: dict[str, Call] = {}
    for item, message in zip(said, messages, strict=True):
        for call in item.calls:
            waiting[call.call_id] = call
        if item.role == "tool":
            call = waiting.pop(str(message.get("tool_call_id", "")), None)
            if call is not None:
                call.result = pretty(item.text)
                item.role = "joined"


def _join_turns(said: Sequence[Said], turns: Sequence[Turn]) -> None:
    """From the end: prompts may hold answers of an example that nobody sampled."""
    left = list(turns)
    for item in reversed(said):
        if item.role == "assistant" and left and _is_of(item, left[-1]):
            item.turn = left.pop()


def _is_of(item: Said, turn: Turn) -> bool:
    """Whether a message is what was sampled in that turn; agents may trim it."""
    text = text_of(turn.response.get("content")).strip()
    calls = [str(one.get("name")) for one in functions_called(turn.response)]
    return text == item.text.strip() or (not text and calls == [call.name for call in item.calls])
