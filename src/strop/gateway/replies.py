"""Completions -> the JSON that OpenAI's clients read: a chat completion, or the chunks of a streamed one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from strop.gateway.tool_calls import ToolCall
from strop.schema.sampling import FinishReason


def assistant_message(content: str, calls: Sequence[ToolCall], *, call_ids: Sequence[str]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["content"] = content or None
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call_id, call in zip(call_ids, calls, strict=True)
        ]
    return message


def finish_reason(reason: FinishReason, message: dict[str, Any]) -> str:
    """OpenAI's word; `length` stays even where a whole tool call came before the cut."""
    return "tool_calls" if reason is FinishReason.STOP and "tool_calls" in message else reason.value


def token_logprobs(
    token_ids: Iterable[int], logprobs: Iterable[float], token_text: Callable[[int], str]
) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for token_id, logprob in zip(token_ids, logprobs, strict=True):
        text = token_text(token_id)
        # A token that is part of a character has no text of its own whose bytes could be given.
        octets = None if "\ufffd" in text else list(text.encode())
        content.append({"token": text, "logprob": logprob, "bytes": octets, "top_logprobs": []})
    return {"content": content, "refusal": None}


def completion(
    *,
    reply_id: str,
    created: int,
    model: str,
    policy_version: int,
    choices: list[dict[str, Any]],
    usage: dict[str, int],
) -> dict[str, Any]:
    """`created` in seconds since 1970. The fingerprint tells which weights gave the last token."""
    return {
        "id": reply_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "system_fingerprint": f"policy-version-{policy_version}",
        "choices": choices,
        "usage": usage,
    }


def usage_of(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def chunk(
    head: dict[str, Any],
    index: int,
    delta: dict[str, Any],
    *,
    logprobs: dict[str, Any] | None = None,
    finish: str | None = None,
) -> dict[str, Any]:
    """One event of a stream. `head` holds what all of them share."""
    choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
    return {**head, "object": "chat.completion.chunk", "choices": [choice]}


def closing_chunks(
    reply: dict[str, Any], shown: Sequence[int], *, logprobs_sent: bool, wants_usage: bool
) -> Iterator[dict[str, Any]]:
    """What is left to send of a finished reply, after `shown` characters of each choice's content.

    With nothing sent it is the whole reply: so a retried stream is answered.
    """
    head = {key: reply[key] for key in ("id", "created", "model")}
    if wants_usage:
        head["usage"] = None
    for choice, length in zip(reply["choices"], shown, strict=True):
        index, message = choice["index"], choice["message"]
        logprobs = None if logprobs_sent else choice["logprobs"]
        rest = (message["content"] or "")[length:]
        if rest or logprobs:
            yield chunk(head, index, {"content": rest}, logprobs=logprobs)
        for number, call in enumerate(message.get("tool_calls", ())):
            yield chunk(head, index, {"tool_calls": [{"index": number, **call}]})
        yield chunk(head, index, {}, finish=choice["finish_reason"])
    if wants_usage:
        yield {**head, "object": "chat.completion.chunk", "choices": [], "usage": reply["usage"]}


def whole_stream(reply: dict[str, Any], *, wants_usage: bool) -> Iterator[dict[str, Any]]:
    """A reply from memory as a stream."""
    head = {key: reply[key] for key in ("id", "created", "model")}
    for choice in reply["choices"]:
        yield chunk(head, choice["index"], {"role": "assistant", "content": ""})
    yield from closing_chunks(
        reply, [0] * len(reply["choices"]), logprobs_sent=False, wants_usage=wants_usage
    )
