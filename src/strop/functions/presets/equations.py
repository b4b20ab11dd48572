"""Answer and reference -> whether they are the same mathematics, by math-verify, in a process of its own."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from strop.functions.isolated import isolated
from strop.functions.presets.answer import Answer, RowLacks, Scored, references, text_of
from strop.functions.presets.mathematics import as_formula, as_read, numbers_differ

NEEDS = {"math_equal": ("math_verify", "pebble")}

_BOX = re.compile(r"\\boxed\s*\{")

_START_S = 60.0
"""Loading sympy takes seconds, on a busy machine many; it is done before the first comparison."""


def math_equal(
    answer: str | Answer,
    reference: object,
    *,
    boxed: Annotated[
        bool, Field(description="without a `\\boxed{}` it is 0; where there is one, the last counts anyway")
    ] = False,
    max_characters: Annotated[int, Field(ge=1, description="only the last so many are read")] = 20_000,
    limit_s: Annotated[
        float, Field(gt=0, le=600, description="seconds of comparing; past them it is 0")
    ] = 5.0,
) -> float:
    """1 for an answer that is mathematically equal to the reference: LaTeX, fractions, sets, units apart.

    An answer that cannot be compared in time is not shown to be right, so it is 0; `timed_out` counts them.
    """
    wanted = references(reference)
    text = text_of(answer)[-max_characters:]
    box = _last_box(text)
    text = f"${as_formula(box)}$" if box else "" if boxed or box is not None else as_read(text)
    if not text.strip():
        return 0.0
    isolated(_load, limit_s=_START_S)
    try:
        same = isolated(_same, text, wanted, limit_s=limit_s)
    except MemoryError:
        return Scored(0.0, timed_out=1.0)
    if same is None:
        return Scored(0.0, timed_out=1.0)
    if same == "unread":
        raise RowLacks(f"the row's reference cannot be read as mathematics: {wanted[0][:80]!r}")
    return float(same == "same")


def _last_box(text: str) -> str | None:
    """What stands in the last \\boxed{}, empty where it is not closed; None without one."""
    starts = [match.end() for match in _BOX.finditer(text)]
    if not starts:
        return None
    depth = 1
    for index in range(starts[-1], len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return text[starts[-1] : index]
    return ""


def _load() -> bool:
    import math_verify  # pyright: ignore[reportMissingTypeStubs]

    return callable(math_verify.verify)


def _same(text: str, wanted: list[str]) -> str:
    """In the other process: `same`, `other`, or `unread` for references that are no mathematics."""
    import logging

    import math_verify  # pyright: ignore[reportMissingTypeStubs]

    library: Any = math_verify  # half typed: it takes None for a limit, and says it does not
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    golds = [_parse_reference(library, one) for one in wanted]
    if not any(golds):
        return "unread"
    # Its own time limits use signal.alarm; this process has one for all.
    found = library.parse(text, parsing_timeout=None)
    same = any(_equal(library, gold, found) for gold in golds if gold)
    return "same" if same else "other"


def _equal(library: Any, gold: list[Any], found: list[Any]) -> bool:
    return library.verify(gold, found, timeout_seconds=None) and not numbers_differ(gold, found)


def _parse_reference(library: Any, text: str) -> list[Any]:
    """A reference is mathematics as a whole, with or without dollars around it."""
    box = _last_box(text)
    plain = as_formula(text.strip() if box is None else box)
    for form in (plain if "$" in plain else f"${plain}$", plain):
        if found := library.parse(form, parsing_timeout=None):
            return list(found)
    return []
