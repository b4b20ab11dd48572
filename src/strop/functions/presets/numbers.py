"""Numbers in texts: read, compared by value or with a tolerance."""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal

from pydantic import Field

from strop.functions.presets.answer import Answer, RowLacks, references, text_of
from strop.functions.presets.normalisation import normalised

_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d{1,400})(?:\.\d{1,400})?(?:[eE][-+]?\d{1,4})?(?![\w]|\.\d)"
)
_SIGNS = str.maketrans({"−": "-", "–": "-", "﹣": "-", "＋": "+"})


def numeric_close(
    answer: str | Answer,
    reference: object,
    *,
    absolute: Annotated[float, Field(ge=0, allow_inf_nan=False, description="allowed difference")] = 1e-9,
    relative: Annotated[
        float, Field(ge=0, le=1, description="allowed difference as a share of the reference")
    ] = 0.0,
    zero_at: Annotated[
        float | None,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="difference at which the score is 0; between, it falls evenly",
        ),
    ] = None,
    which: Annotated[
        Literal["last", "first", "only"], Field(description="of several numbers; `only`: several are 0")
    ] = "last",
    numerals: Annotated[bool, Field(description="Chinese and English numerals are read, too")] = False,
) -> float:
    """1 for a number as near to the reference as allowed, 0 for any other or none.

    >>> numeric_close("about 3.14", 3.14159, absolute=0.01), numeric_close("3", 4, zero_at=2.0)
    (1.0, 0.5)
    """
    wanted = _value(references(reference)[0])
    text = text_of(answer)
    found = numbers_in(normalised(text, ("numerals",)) if numerals else text)
    if not found or (which == "only" and len(found) > 1):
        return 0.0
    distance = abs((found[0] if which == "first" else found[-1]) - wanted)
    if distance <= max(absolute, relative * abs(wanted)):
        return 1.0
    return max(0.0, 1.0 - distance / zero_at) if zero_at is not None else 0.0


def numbers_in(text: str) -> list[float]:
    """Every number of a text, in order; those beyond any float are left out.

    >>> numbers_in("1,000 apples at -2.5e1, v1.2.3, 12th"), numbers_in("1e999")
    ([1000.0, -25.0], [])
    """
    plain = normalised(text, ("width",)).translate(_SIGNS)
    values = [float(match[0].replace(",", "")) for match in _NUMBER.finditer(plain)]
    return [value for value in values if math.isfinite(value)]


def number_in(text: str) -> float | None:
    """The number that a text is, with nothing but spaces, currency or a full stop around it."""
    found = numbers_in(text.strip().strip("$€£¥￥%。.").strip())
    return found[0] if len(found) == 1 else None


def same_number(value: float, reference: str) -> bool:
    other = number_in(reference)
    return other is not None and math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-12)


def _value(reference: str) -> float:
    value = number_in(reference)
    if value is None:
        raise RowLacks(f"the row's reference is no number: {reference[:80]!r}")
    return value
