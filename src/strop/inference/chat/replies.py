"""Completions -> the JSON that OpenAI's clients read: a chat completion, or the chunks of a streamed one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from strop.inference.chat.sampling import derive_seed
from strop.inference.chat.tool_calls import MalformedToolCall, ToolCall, parse_tool_calls
from strop.schema.sampling import FinishReason, TopLogprobs


def message_of(text: str, *, parses_tools: bool, seed: int) -> tuple[dict[str, Any], bool]:
    """The assistant's message of a sampled text, and whether a tool call in it could not be read.

    What cannot be read as a tool call stays content: the agent sees it and goes on. Templates may print the
    ids of calls, so they are made of the `seed` and repeat with it.
    """
    content, calls, malformed = text, (), False
    if parses_tools:
        try:
            content, calls = parse_tool_calls(text)
        except MalformedToolCall:
            malformed = True
    call_ids = [f"call_{derive_seed(seed, number):016x}" for number in range(len(calls))]
    return _assistant_message(content, calls, call_ids), malformed


def _assistant_message(content: str, calls: Sequence[ToolCall], call_ids: Sequence[str]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["content"] = content or None
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call_id, call in zip(call_ids, calls, strict=True)
        ]
    return message


def choice(
    index: int, message: dict[str, Any], reason: FinishReason, logprobs: dict[str, Any] | None
) -> dict[str, Any]:
    """One choice of a reply. The reason `length` stays even where a whole tool call came before the cut."""
    calls_tools = reason is FinishReason.STOP and "tool_calls" in message
    finish = "tool_calls" if calls_tools else reason.value
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}


def token_logprobs(
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    top_logprobs: Sequence[TopLogprobs],
    token_text: Callable[[int], str],
) -> dict[str, Any]:
    """`top_logprobs` is empty where nobody asked for more than the sampled tokens."""

    def told(token_id: int, logprob: float) -> dict[str, Any]:
        text = token_text(token_id)
        # A token that is part of a character has no text of its own whose bytes could be given.
        octets = None if "\ufffd" in text else list(text.encode())
        return {"token": text, "logprob": logprob, "bytes": octets}

    others = top_logprobs or [()] * len(token_ids)
    content = [
        {**told(token_id, logprob), "top_logprobs": [told(*one) for one in best]}
        for token_id, logprob, best in zip(token_ids, logprobs, others, strict=True)
    ]
    return {"content": content, "refusal": None}


def completion(
    *,
    reply_id: str,
    created: int,
    model: str,
    fingerprint: str,
    choices: list[dict[str, Any]],
    usage: dict[str, int],
) -> dict[str, Any]:
    """`created` in seconds since 1970. The fingerprint tells which weights gave the answer."""
    return {
        "id": reply_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "system_fingerprint": fingerprint,
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
    change = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
    return {**head, "object": "chat.completion.chunk", "choices": [change]}


def closing_chunks(
    reply: dict[str, Any], shown: Sequence[int], *, logprobs_sent: bool, wants_usage: bool
) -> Iterator[dict[str, Any]]:
    """What is left to send of a finished reply, after `shown` characters of each choice's content.

    With nothing sent it is the whole reply: so a retried stream is answered.
    """
    head = {key: reply[key] for key in ("id", "created", "model")}
    if wants_usage:
        head["usage"] = None
    for one, length in zip(reply["choices"], shown, strict=True):
        index, message = one["index"], one["message"]
        logprobs = None if logprobs_sent else one["logprobs"]
        rest = (message["content"] or "")[length:]
        if rest or logprobs:
            yield chunk(head, index, {"content": rest}, logprobs=logprobs)
        for number, call in enumerate(message.get("tool_calls", ())):
            yield chunk(head, index, {"tool_calls": [{"index": number, **call}]})
        yield chunk(head, index, {}, finish=one["finish_reason"])
    if wants_usage:
        yield {**head, "object": "chat.completion.chunk", "choices": [], "usage": reply["usage"]}


def whole_stream(reply: dict[str, Any], *, wants_usage: bool) -> Iterator[dict[str, Any]]:
    """A reply from memory as a stream."""
    head = {key: reply[key] for key in ("id", "created", "model")}
    for one in reply["choices"]:
        yield chunk(head, one["index"], {"role": "assistant", "content": ""})
    yield from closing_chunks(
        reply, [0] * len(reply["choices"]), logprobs_sent=False, wants_usage=wants_usage
    )
