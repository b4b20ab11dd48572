"""An answer's text -> numbers that show how it may exploit a reward: repetition, stuffing, marks, emptiness,
noise."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_CHARS = 4000
"""Of an answer are looked at; what is behind it says the same."""

_MIN_WORDS = 6
"""Shares of words mean nothing below it."""

_WORD = re.compile(r"[^\W\d_]+|\d+")
_MARKUP = re.compile(r"[*_#`|~>]{1,3}|^\s*[-+]\s|^\s*\d+\.\s|</?[a-z]+>", re.MULTILINE)
_REFUSAL = re.compile(
    r"\b(i (?:can(?:no|')?t|am (?:not able|unable)|won't)|i'm sorry|as an ai)\b"
    r"|(?:抱歉|对不起|无法(?:回答|提供|完成)|不能(?:回答|提供))",
    re.IGNORECASE,
)
_SCRIPTS = (
    "LATIN",
    "CYRILLIC",
    "GREEK",
    "ARABIC",
    "HEBREW",
    "DEVANAGARI",
    "THAI",
    "HANGUL",
    "CJK",
    "HIRAGANA",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One trajectory as the rules see it. Shares are from 0 to 1; `markup` is marks a word."""

    rollout_id: str
    sample_id: str
    reward: float | None
    parts: Mapping[str, float]
    num_tokens: int
    text: str
    empty: bool
    repetition: float
    top_word: float
    markup: float
    garbled: bool


def last_answer(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the last assistant message says, tool calls left out."""
    for message in reversed(messages):
        if message.get("role") == "assistant":
            content = message.get("content")
            if isinstance(content, str):
                return content[:MAX_CHARS]
            if isinstance(content, list):
                texts = (part.get("text", "") for part in content if isinstance(part, dict))  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
                return " ".join(str(text) for text in texts)[:MAX_CHARS]  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
            return ""
    return ""


def is_empty(text: str) -> bool:
    """Says nothing, or that it will not."""
    return not _WORD.search(text) or (_REFUSAL.search(text) is not None and len(text) < 400)


def repetition(text: str) -> float:
    """Share of the text's word triples that stood in it before.

    >>> repetition("a b c d e f g h"), round(repetition("go on and on " * 10), 2)
    (0.0, 0.89)
    """
    words = _words(text)
    triples = list(zip(words, words[1:], words[2:], strict=False))
    return 1.0 - len(set(triples)) / len(triples) if len(words) >= _MIN_WORDS else 0.0


def top_word(text: str) -> float:
    """Share of the most frequent word of three letters or more.

    >>> top_word("excellent answer excellent excellent excellent work")
    0.6666666666666666
    """
    words = _words(text)
    if len(words) < _MIN_WORDS:
        return 0.0
    long = Counter(word for word in words if len(word) > 2)
    return max(long.values(), default=0) / len(words)


def markup(text: str) -> float:
    """Marks of format and emoji, for each word."""
    marks = len(_MARKUP.findall(text)) + sum(unicodedata.category(letter) == "So" for letter in text)
    return marks / max(1, len(_words(text)))


def is_garbled(text: str) -> bool:
    """Whether much of it is not writing: broken characters, or scripts mixed within words.

    >>> is_garbled("plain words, 中文 too"), is_garbled("ab\\ufffdc \\ufffd\\ufffd zл漢x")
    (False, True)
    """
    letters = [letter for letter in text if not letter.isspace()]
    if len(letters) < 4:
        return False
    broken = sum(
        unicodedata.category(letter) in ("Cc", "Cn", "Co", "Cs") or letter == "\ufffd" for letter in letters
    )
    words = _WORD.findall(text)
    mixed = sum(len(_scripts(word)) > 1 for word in words)
    return broken > 0.1 * len(letters) or mixed > max(1, 0.2 * len(words))


def _scripts(word: str) -> set[str]:
    found: set[str] = set()
    if word.isascii():
        return found
    for letter in word:
        name = unicodedata.name(letter, "")
        found |= {script for script in _SCRIPTS if name.startswith(script)}
    return found - {"HIRAGANA"} if "CJK" in found else found  # Japanese mixes these


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]
