"""Sampled text -> content and tool calls: `<tool_call>{"name": ..., "arguments": ...}</tool_call>`.

Hermes, Qwen and models like them write calls so. Argument text is kept as the model wrote it, never parsed
and written anew: an agent then sends it back unchanged, and the next prompt can keep the sampled ids.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_DECODER = json.JSONDecoder()


class MalformedToolCall(ValueError):
    """A tool call was begun that cannot be read; the text says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call. `arguments` is JSON text as sampled; whether it fits the tool is for the agent to say."""

    name: str
    arguments: str


def parse_tool_calls(text: str) -> tuple[str, tuple[ToolCall, ...]]:
    """Split a finished answer into the content before its calls, and the calls; text after them is dropped.

    Raises:
        MalformedToolCall: a call that is cut off or is no JSON object with a `name`.

    >>> parse_tool_calls('Let me see.\\n<tool_call>\\n{"name": "add", "arguments": {"a":1}}\\n</tool_call>')
    ('Let me see.', (ToolCall(name='add', arguments='{"a":1}'),))
    """
    at = text.find(OPEN)
    if at < 0:
        return text, ()
    content = text[:at].rstrip()
    calls: list[ToolCall] = []
    while text.startswith(OPEN, at):
        members, at = _object(text, _after_space(text, at + len(OPEN)))
        at = _after_space(text, at)
        if not text.startswith(CLOSE, at):
            raise MalformedToolCall(f"expected {CLOSE} at character {at}")
        at = _after_space(text, at + len(CLOSE))
        calls.append(_call(members))
    return content, tuple(calls)


def _call(members: dict[str, str]) -> ToolCall:
    name = json.loads(members.get("name", "null"))
    if not isinstance(name, str) or not name:
        raise MalformedToolCall("a tool call needs a name")
    arguments = members.get("arguments", "{}")
    if arguments.startswith('"'):  # Some models write the argument object as a JSON string.
        arguments = json.loads(arguments)
    if arguments in ("", "null"):  # A tool without parameters is called so.
        arguments = "{}"
    return ToolCall(name=name, arguments=arguments)


def _object(text: str, at: int) -> tuple[dict[str, str], int]:
    """The members of the JSON object at `at`, each value as its source text; and where the object ends."""
    members: dict[str, str] = {}
    at = _expect(text, at, "{")
    if text.startswith("}", at):
        return members, at + 1
    while True:
        key, end = _value(text, at)
        if not isinstance(key, str):
            raise MalformedToolCall(f"expected a member's name at character {at}")
        at = _expect(text, _after_space(text, end), ":")
        _, end = _value(text, at)
        members[key] = text[at:end]
        at = _after_space(text, end)
        if text.startswith("}", at):
            return members, at + 1
        at = _expect(text, at, ",")


def _value(text: str, at: int) -> tuple[object, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        raise MalformedToolCall(str(error)) from None


def _expect(text: str, at: int, sign: str) -> int:
    if not text.startswith(sign, at):
        raise MalformedToolCall(f"expected {sign!r} at character {at}")
    return _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


class ShownText:
    """The part of a growing answer that is content for certain, while a tool call may still begin.

    Holds back everything from `<tool_call>` on, any beginning of that mark at the end, and white space
    before it.
    """

    def __init__(self, *, watches_for_tools: bool) -> None:
        self._watches = watches_for_tools
        self._text = ""
        self.length = 0

    def feed(self, text: str) -> str:
        """Take what was sampled, give what may now be shown beyond what was shown before."""
        self._text += text
        end = self._certain() if self._watches else len(self._text)
        shown = self._text[self.length : end]
        self.length = end
        return shown

    def _certain(self) -> int:
        end = self._text.find(OPEN, self.length)
        if end < 0:
            end = len(self._text) - _overlap(self._text, OPEN)
        return self.length + len(self._text[self.length : end].rstrip())


def _overlap(text: str, mark: str) -> int:
    """Length of the longest end of `text` that begins `mark`."""
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0
