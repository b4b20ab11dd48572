"""Messages with tools -> the same in plain turns, for chat templates that know no tools.

Tools are described in the system message, calls and results stand in the text as Hermes and Qwen have them,
so that `inference.gateway.tool_calls` reads what such a model answers.
"""

from __future__ import annotations

import json
from typing import Any

from strop.inference.gateway.tool_calls import CLOSE, OPEN

_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
_AFTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    f'{OPEN}{CLOSE} XML tags:\n{OPEN}\n{{"name": <function-name>, "arguments": <args-json-object>}}\n{CLOSE}'
)


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
