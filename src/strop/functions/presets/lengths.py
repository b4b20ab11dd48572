"""Answer -> a penalty of 0 to -1 for its length or its repetitions, to be added to other rewards."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from strop.functions.presets.answer import Answer, CannotScore, Scored, text_of

Unit = Annotated[
    Literal["characters", "words", "tokens"],
    Field(description="what is counted; a Chinese character is a word; tokens are all that the model wrote"),
]
_WORD = re.compile(
    r"[\u3400-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af]|[^\s\u3400-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af]+"
)


def length_penalty(
    answer: str | Answer,
    *,
    free: Annotated[int, Field(ge=0, description="lengths up to this cost nothing")],
    full: Annotated[int, Field(ge=1, description="from this length on it is -1; between, it falls evenly")],
    least: Annotated[int, Field(ge=0, description="shorter answers are -1: else silence is cheapest")] = 1,
    unit: Unit = "characters",
) -> float:
    """0 for a short answer, down to -1 for a long one.

    >>> [length_penalty("x" * count, free=10, full=20) for count in (0, 10, 15, 99)]
    [-1.0, 0.0, -0.5, -1.0]
    """
    length = length_in(answer, unit)
    if length < least:
        return -1.0
    return 0.0 - _share(length - free, full - free)


def check_length_penalty(params: dict[str, int]) -> str | None:
    """What is wrong with the parameters beyond their types."""
    if params["full"] <= params["free"]:
        return f"full: {params['full']} must be above free, which is {params['free']}"
    return None


def overlong_penalty(
    answer: str | Answer,
    *,
    limit: Annotated[int, Field(ge=1, description="length from which on it is -1, usually max_tokens")],
    buffer: Annotated[int, Field(ge=1, description="length before the limit in which it falls from 0")],
    unit: Unit = "tokens",
) -> float:
    """0 until shortly before the limit, then down to -1; -1 for an answer that was cut off.

    Soft overlong punishment, DAPO, arXiv:2503.14476, equation 13.

    >>> [overlong_penalty("x" * count, limit=20, buffer=10, unit="characters") for count in (10, 15, 20)]
    [0.0, -0.5, -1.0]
    """
    if isinstance(answer, Answer) and answer.truncated:
        return -1.0
    return 0.0 - _share(length_in(answer, unit) - (limit - buffer), buffer)


def check_overlong_penalty(params: dict[str, int]) -> str | None:
    """What is wrong with the parameters beyond their types."""
    if params["buffer"] > params["limit"]:
        return f"buffer: {params['buffer']} is more than limit, which is {params['limit']}"
    return None


def repetition_penalty(
    answer: str | Answer,
    *,
    n: Annotated[int, Field(ge=1, le=64, description="words in a row that count as said again")] = 4,
    allowed: Annotated[float, Field(ge=0, lt=1, description="share of repeats that costs nothing")] = 0.1,
) -> float:
    """0 for an answer that does not repeat itself, down to -1 for one that does nothing else.

    >>> repetition_penalty("one two three four five six"), round(repetition_penalty("no " * 1000), 3)
    (0.0, -0.999)
    """
    words = words_of(text_of(answer).casefold())
    grams = [tuple(words[index : index + n]) for index in range(len(words) - n + 1)]
    if not grams:
        return 0.0
    repeated = 1 - len(set(grams)) / len(grams)
    return Scored(0.0 - _share(repeated - allowed, 1 - allowed), repeated=repeated)


def words_of(text: str) -> list[str]:
    """
    >>> words_of("go 北京 now")
    ['go', '北', '京', 'now']
    """
    return _WORD.findall(text)


def length_in(answer: str | Answer, unit: str) -> int:
    """
    Raises:
        CannotScore: tokens are asked for and nobody counted them.
    """
    if unit == "tokens":
        num_tokens = answer.num_tokens if isinstance(answer, Answer) else None
        if num_tokens is None:
            raise CannotScore("no token count came with the answer: give `completion.usage`, or another unit")
        return num_tokens
    text = text_of(answer)
    return len(words_of(text)) if unit == "words" else len(text)


def _share(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0)
