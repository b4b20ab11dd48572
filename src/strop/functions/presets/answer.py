"""What a preset reward looks at: the model's last words, and the row's reference.

The presets take a plain text as well, so that they can be called from anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from strop.schema.function import DISCARD, RewardInput


class CannotScore(Exception):
    """There is no score, which is not a score of 0: a sandbox is away, or the row lacks a reference."""

    error_code = "cannot_score"


class RowLacks(CannotScore):
    """The row is at fault; trying again would not help."""

    error_code = DISCARD


class Scored(float):
    """A score with metrics beside it."""

    metrics: Mapping[str, float]

    def __new__(cls, score: float, **metrics: float) -> Scored:
        made = super().__new__(cls, score)
        made.metrics = metrics
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`text` is that of the last message, if the model wrote it; `num_tokens` are all that it wrote."""

    text: str = ""
    messages: Sequence[Mapping[str, Any]] = field(default_factory=tuple[Mapping[str, Any], ...])
    num_tokens: int | None = None
    truncated: bool = False


def answer_of(input: RewardInput, *, after: str | None = None) -> Answer:
    """The answer of a rollout; with `after`, what follows the last place where that stands.

    Where it stands nowhere, as `</think>` when thinking was cut off, there is no answer.
    """
    messages = input.agent_output.messages or []
    last = messages[-1] if messages else {}
    text = plain_text(last.get("content")) if last.get("role") == "assistant" else ""
    if after is not None:
        _, found, rest = text.rpartition(after)
        text = rest if found else ""
    completion: Mapping[str, Any] = (input.model_extra or {}).get("completion") or {}
    usage: Mapping[str, Any] = completion.get("usage") or {}
    return Answer(
        text=text,
        messages=messages,
        num_tokens=usage.get("completion_tokens"),
        truncated=completion.get("finish_reason") == "length",
    )


def text_of(answer: str | Answer) -> str:
    return answer.text if isinstance(answer, Answer) else answer


def plain_text(content: object) -> str:
    """The text of a message's content, which may be a list of parts.

    >>> plain_text([{"type": "text", "text": "4"}, {"type": "image_url"}])
    '4'
    """
    if isinstance(content, list):
        parts = cast("list[Mapping[str, Any]]", content)
        return "".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")
    return content if isinstance(content, str) else ""


def references(reference: object) -> list[str]:
    """The texts that an answer may equal: one, or a list of them.

    Raises:
        RowLacks: there is none, or an empty one, which an empty answer would equal.
    """
    given = cast("list[object]", reference) if isinstance(reference, list | tuple) else [reference]
    texts = [_reference_text(one) for one in given]
    if not texts:
        raise RowLacks("the row's reference is an empty list")
    return texts


def _reference_text(value: object) -> str:
    if value is None:
        raise RowLacks("the row has no reference: no ground_truth, or not under the key that is looked at")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        kind = "list in a list" if isinstance(value, list) else "dict"
        raise RowLacks(f"the row's reference is a {kind}; expected text or a list of texts")
    text = str(value)
    if not text.strip():
        raise RowLacks("the row's reference is empty")
    return text
