"""Answer and reference -> 1 or 0 by comparing text: equal, contained, or extracted and compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from strop.functions.presets.answer import Answer, RowLacks, Scored, references, text_of
from strop.functions.presets.normalisation import USUAL, Normalisation, normalised
from strop.functions.presets.numbers import number_in, same_number

HowSame = Annotated[
    Sequence[Normalisation], Field(description="differences that do not count, in answer and reference")
]


def exact_match(answer: str | Answer, reference: object, *, normalise: HowSame = USUAL) -> float:
    """1 for an answer that equals the reference, or one of a list of them.

    >>> exact_match(" Paris", "paris"), exact_match("", "paris"), exact_match("B", ["a", "b"])
    (1.0, 0.0, 1.0)
    """
    text = normalised(text_of(answer), normalise)
    return float(bool(text.strip()) and text in _wanted(reference, normalise))


def contains(
    answer: str | Answer,
    reference: object,
    *,
    need: Annotated[
        Literal["all", "any", "share"],
        Field(description="of a list of references all, any, or the share of them that is found"),
    ] = "all",
    whole_words: Annotated[
        bool, Field(description="`4` is not found in `14`, nor `cat` in `category`")
    ] = True,
    forbidden: Annotated[
        Sequence[str],
        Field(description="texts that make it 0, such as the other labels: else naming all of them wins"),
    ] = (),
    max_characters: Annotated[int | None, Field(ge=1, description="a longer answer is 0")] = None,
    normalise: HowSame = USUAL,
) -> float:
    """1 for an answer in which the reference stands, or each of a list of them.

    >>> contains("It is Paris.", "paris"), contains("14", "4"), contains("a or b", ["a", "c"], need="share")
    (1.0, 0.0, 0.5)
    """
    text = normalised(text_of(answer), normalise)
    if max_characters is not None and len(text_of(answer)) > max_characters:
        return 0.0
    if any(_stands_in(normalised(one, normalise), text, whole_words) for one in forbidden):
        return 0.0
    found = [_stands_in(one, text, whole_words) for one in _wanted(reference, normalise)]
    share = sum(found) / len(found)
    return share if need == "share" else float(share > 0 if need == "any" else share == 1)


def regex_match(
    answer: str | Answer,
    reference: object,
    *,
    pattern: Annotated[str, Field(min_length=1, description="finds what is compared, in its first group")],
    which: Annotated[
        Literal["last", "first", "only"], Field(description="of several finds; `only`: several are 0")
    ] = "last",
    compare: Annotated[Literal["text", "number"], Field(description="as text, or by value")] = "text",
    normalise: HowSame = USUAL,
    limit_s: Annotated[
        float, Field(gt=0, le=60, description="seconds of searching; past them it is 0")
    ] = 1.0,
) -> float:
    """1 for an answer in which the pattern finds what equals the reference.

    >>> regex_match("ANSWER: 3\\nANSWER: 4", 4, pattern=r"ANSWER: *(\\S+)")
    1.0
    """
    wanted = references(reference)
    import regex

    try:
        finds = [
            match[1] if match.re.groups else match[0]
            for match in regex.finditer(pattern, text_of(answer), timeout=limit_s)
        ]
    except TimeoutError:
        return Scored(0.0, timed_out=1.0)
    if not finds or (which == "only" and len(finds) > 1):
        return 0.0
    found = (finds[0] if which == "first" else finds[-1]) or ""
    if compare == "number":
        value = number_in(found)
        return float(value is not None and any(same_number(value, one) for one in wanted))
    return exact_match(found, wanted, normalise=normalise)


def check_regex_match(params: dict[str, Any]) -> str | None:
    """What is wrong with the parameters beyond their types."""
    import regex

    try:
        compiled = regex.compile(params["pattern"])
    except regex.error as error:
        return f"pattern: no regular expression: {error}"
    return "pattern: has more than one group; mark others with (?:...)" if compiled.groups > 1 else None


def _wanted(reference: object, how: Sequence[Normalisation]) -> list[str]:
    wanted = [normalised(one, how) for one in references(reference)]
    if not all(one.strip() for one in wanted):
        raise RowLacks("nothing is left of the row's reference when it is normalised")
    return wanted


def _stands_in(part: str, text: str, whole_words: bool) -> bool:
    start = text.find(part)
    while start >= 0:
        end = start + len(part)
        if not whole_words or not (
            _joined(text[start - 1 : start], part[0])
            or _joined(part[-1], text[end : end + 1], text[end + 1 : end + 2])
        ):
            return True
        start = text.find(part, start + 1)
    return False


def _joined(left: str, right: str, beyond: str = "") -> bool:
    """Whether two neighbours are of one word or one number. Chinese has no gaps between words."""
    if left.isdigit() and right in (".", ",") and right and beyond.isdigit():
        return True
    if left in (".", "-") and left and right.isdigit():
        return True
    return left.isascii() and right.isascii() and left.isalnum() and right.isalnum()
