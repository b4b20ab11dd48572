"""Text -> the same text without differences that do not count, such as letter case.

Both sides of a comparison go through it, so what is lost is lost for both.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

Normalisation = Literal["width", "case", "space", "punctuation", "numerals"]
USUAL: tuple[Normalisation, ...] = ("width", "case", "space")

_CHINESE_NUMERAL = re.compile(
    "负?[零〇一二两三四五六七八九十廿百千万亿壹贰叁肆伍陆柒捌玖拾佰仟]+(?:点[零〇一二三四五六七八九]+)?"
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_ENGLISH_WORD = re.compile(r"[A-Za-z]")
_MAX_NUMERAL = 40
"""Characters of one numeral; a longer run is no number that anyone wrote."""


def normalised(text: str, how: Sequence[Normalisation]) -> str:
    """
    `width`: full-width and other compatibility forms are their plain ones. `case`: letters are small.
    `space`: runs of spaces are one, those at the ends none. `punctuation`: there is none, but for the point
    and the sign of a number. `numerals`: Chinese and English numerals are digits, and digits have no
    thousands commas. Characters without a width are dropped always.

    >>> normalised("  ＡＢｃ　１２", ("width", "case", "space"))
    'abc 12'
    >>> normalised("It's -3.5, “ok”!", ("punctuation", "space"))
    'Its -3.5 ok'
    """
    text = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    if "width" in how:
        text = unicodedata.normalize("NFKC", text)
    if "numerals" in how:
        text = _with_digits(text)
    if "case" in how:
        text = text.casefold()
    if "punctuation" in how:
        text = _without_punctuation(text)
    return " ".join(text.split()) if "space" in how else text


def _without_punctuation(text: str) -> str:
    kept: list[str] = []
    for index, letter in enumerate(text):
        before, after = text[index - 1 : index], text[index + 1 : index + 2]
        of_number = (letter == "." and before.isdigit() and after.isdigit()) or (
            letter in "-−" and (after.isdigit() or after == ".") and not before.isalnum()
        )
        if of_number or unicodedata.category(letter)[0] != "P":
            kept.append(letter)
    return "".join(kept)


def _with_digits(text: str) -> str:
    text = _THOUSANDS.sub("", text)
    text = _CHINESE_NUMERAL.sub(lambda match: _chinese_digits(match[0]), text)
    return _english_digits(text) if _ENGLISH_WORD.search(text) else text


def _chinese_digits(numeral: str) -> str:
    if len(numeral) > _MAX_NUMERAL:
        return numeral
    try:
        value = _chinese()(numeral.replace("〇", "零"), "normal")
    except ValueError:
        return numeral
    return f"{value:g}" if isinstance(value, float) else str(value)


def _english_digits(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(_english()(line, "en") if _ENGLISH_WORD.search(line) else line for line in lines)


@cache
def _chinese() -> Any:
    import cn2an  # pyright: ignore[reportMissingTypeStubs]

    return cn2an.cn2an  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


@cache
def _english() -> Any:
    import text_to_num  # pyright: ignore[reportMissingTypeStubs]

    return text_to_num.alpha2digit  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
