"""OpenAI messages -> the messages that chat templates expect.

Templates read plain strings and missing keys, OpenAI clients send parts and nulls. Content is never changed
beyond that: it becomes the prompt. For templates that know no tools, tools are described in the system
message, and calls and results stand in the text as Hermes and Qwen have them, so that `chat.tool_calls` reads
what such a model answers.
"""

from __future__ import annotations

import json
from typing import Any

from strop.inference.chat.errors import RequestRefused
from strop.inference.chat.tool_calls import CLOSE, OPEN
from strop.locales import msg

ROLES = ("system", "developer", "user", "assistant", "tool")

_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
_AFTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    f'{OPEN}{CLOSE} XML tags:\n{OPEN}\n{{"name": <function-name>, "arguments": <args-json-object>}}\n{CLOSE}'
)


def for_template(messages: list[dict[str, Any]], *, raw_arguments: bool) -> list[dict[str, Any]]:
    """Join text parts, leave nulls out, call `developer` by its older name `system`.

    With `raw_arguments` the template prints a tool call's arguments as text, as they came; else it gets the
    object. Arguments that are empty or missing are `{}`.

    Raises:
        RequestRefused: 400 that names the message: an unknown role, a part that is no text, a malformed call.
    """
    return [_message(index, message, raw_arguments) for index, message in enumerate(messages)]


def _message(index: int, message: dict[str, Any], raw_arguments: bool) -> dict[str, Any]:
    place = f"messages[{index}]"
    role = message.get("role")
    if role not in ROLES:
        raise RequestRefused(
            msg(
                "{place}.role: expected one of {roles}, found {role!r}",
                place=place,
                roles=", ".join(ROLES),
                role=role,
            ),
            param=f"{place}.role",
        )
    kept = {key: value for key, value in message.items() if value is not None}
    kept["role"] = "system" if role == "developer" else role
    kept["content"] = _text(message.get("content"), f"{place}.content")
    if calls := kept.pop("tool_calls", None):
        kept["tool_calls"] = _tool_calls(calls, f"{place}.tool_calls", raw_arguments)
    return kept


def _text(content: object, place: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestRefused(msg("{place}: expected text or a list of parts", place=place), param=place)
    texts: list[str] = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text" or not isinstance(part.get("text"), str):
            raise RequestRefused(
                msg(
                    "{place}[{index}]: this model reads text only, found a part of type {kind!r}",
                    place=place,
                    index=index,
                    kind=kind,
                ),
                param=place,
            )
        texts.append(part["text"])
    return "\n".join(texts)


def _tool_calls(calls: object, place: str, raw_arguments: bool) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise RequestRefused(msg("{place}: expected a list", place=place), param=place)
    made: list[dict[str, Any]] = []
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestRefused(
                msg("{place}[{index}].function.name is missing", place=place, index=index), param=place
            )
        arguments = function.get("arguments") or "{}"
        if raw_arguments and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        elif isinstance(arguments, str) and not raw_arguments:
            arguments = _parsed(arguments)
        made.append({**call, "function": {**function, "arguments": arguments}})
    return made


def _parsed(arguments: str) -> object:
    """What the agent sent back may be what the model wrote: text that is no JSON stays text."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def is_told(message: dict[str, Any], text: str) -> bool:
    """Whether a message of ours, the agent's or a tool's stands in a rendering, as it is or as JSON has it.

    Templates drop an assistant's earlier thoughts on purpose; what others say must never be dropped.
    """
    content = message["content"].strip()
    if message["role"] == "assistant" or content in text:
        return True
    if any(json.dumps(content, ensure_ascii=ascii)[1:-1] in text for ascii in (False, True)):
        return True
    return " ".join(content.split()) in " ".join(text.split())


def with_instructions_merged(messages: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """System messages that a rendering leaves out, added to the first one that it has, else to the first user
    message: many templates read `system` at the beginning only."""
    dropped = [one for one in messages if one["role"] == "system" and not is_told(one, text)]
    kept = [one for one in messages if not any(one is other for other in dropped)]
    target = next((one for role in ("system", "user") for one in kept if one["role"] == role), None)
    if target is None:
        return messages
    instructions = [one["content"] for one in dropped]
    parts = [target["content"], *instructions]
    if target["role"] == "user":
        parts = [*instructions, target["content"]]
    merged = {**target, "content": "\n\n".join(part for part in parts if part)}
    return [merged if one is target else one for one in kept]


def left_out_error(messages: list[dict[str, Any]], text: str) -> RequestRefused:
    index = next(at for at, message in enumerate(messages) if not is_told(message, text))
    role = messages[index]["role"]
    why = "; a result needs the assistant message that called the tool before it" if role == "tool" else ""
    return RequestRefused(
        msg(
            "messages[{index}]: this model's chat template leaves the {role} message out of the prompt{why}",
            index=index,
            role=role,
            why=why,
        ),
        param=f"messages[{index}]",
    )


def tools_for_template(tools: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Tools with their schema spelled out: one without parameters reads the same however it was written.

    >>> tools_for_template([{"type": "function", "function": {"name": "now"}}])[0]["function"]["parameters"]
    {'type': 'object', 'properties': {}}
    """
    if not tools:
        return None
    return [{**tool, "function": _with_parameters(tool["function"])} for tool in tools]


def _with_parameters(function: dict[str, Any]) -> dict[str, Any]:
    parameters = function.get("parameters") or {}
    if parameters.get("type", "object") != "object" or "properties" in parameters or "$ref" in parameters:
        return function
    return {**function, "parameters": {"type": "object", "properties": {}, **parameters}}


def in_plain_turns(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
) -> list[dict[str, Any]]:
    """Rewrite messages that `for_template` made with `raw_arguments`; those without tools stay as they are.

    The results of one turn's calls become one user message: many templates want the roles to alternate.

    >>> call = {"function": {"name": "add", "arguments": '{"a":  1}'}}
    >>> said = {"role": "assistant", "content": "", "tool_calls": [call]}
    >>> for message in in_plain_turns([said, {"role": "tool", "content": "1"}], None):
    ...     print(message)
    {'role': 'assistant', 'content': '<tool_call>\\n{"name": "add", "arguments": {"a":  1}}\\n</tool_call>'}
    {'role': 'user', 'content': '<tool_response>\\n1\\n</tool_response>'}
    """
    if not tools and not any(message.get("tool_calls") for message in messages):
        return messages
    made: list[dict[str, Any]] = []
    results: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(f"<tool_response>\n{message['content']}\n</tool_response>")
            if len(results) > 1:
                made.pop()
            made.append({"role": "user", "content": "\n".join(results)})
            continue
        results = []
        made.append(_said(message))
    return _told(made, tools) if tools else made


def _said(message: dict[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return message
    parts = [message["content"]] if message["content"] else []
    parts += [f"{OPEN}\n{_call(call['function'])}\n{CLOSE}" for call in calls]
    return {"role": message["role"], "content": "\n".join(parts)}


def _call(function: dict[str, Any]) -> str:
    """Argument text stays as the model wrote it, so that its sampled ids can stand in the next prompt."""
    arguments = function.get("arguments", "{}")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f'{{"name": {json.dumps(function["name"], ensure_ascii=False)}, "arguments": {text}}}'


def _told(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    described = f"{_BEFORE}{listed}{_AFTER}"
    if messages and messages[0]["role"] == "system":
        first, *rest = messages
        return [{**first, "content": f"{first['content']}\n\n{described}"}, *rest]
    return [{"role": "system", "content": described}, *messages]
