"""Formulas as people write them -> as math-verify reads them; and whether two of them have the same numbers.

math-verify rounds to six decimals, so that all small numbers are one to it. Here numbers are compared as they
are: exact forms exactly, decimals by a relative tolerance. Runs in the process that compares.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

TOLERANCE = 1e-6
"""Of the larger number, where one of two is a decimal."""

_EXACT = 1e-30
_SAME_AS_ZERO = 1e-9
_DIGITS = 50

_MIXED = re.compile(r"(\d+)\s*([¼-¾⅐-⅞])")
_THOUSANDS = re.compile(r"(?<=\d)(?:\\[,!:; ]|\\thinspace\b|~|[\u00a0\u2009\u202f ])(?=\d{3}(?!\d))")
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([-+]?\d{1,4})(?!\w)")
_WORD = re.compile(r"(?<!\\)(?<![A-Za-z])[A-Za-z]{2,}")
_NEEDS_FORMULA = re.compile(r"[!^]|\d[eE][-+]?\d")


def as_formula(text: str) -> str:
    """What stands between the dollars of a formula, in the forms that math-verify knows.

    >>> as_formula("１２"), as_formula("½"), as_formula("8\\\\,000"), as_formula("6.62e-34")
    ('12', '1/2', '8000', '6.62 \\\\times 10^{-34}')
    """
    text = unicodedata.normalize("NFKC", _MIXED.sub(r"(\1+\2)", text)).replace("\u2044", "/")
    previous = None
    while previous != text:
        previous, text = text, _THOUSANDS.sub("", text)
    return _SCIENTIFIC.sub(r"\1 \\times 10^{\2}", text)


def as_read(text: str) -> str:
    """An answer without a box: all of it a formula where it has no words, else text that may hold formulas.

    >>> as_read("7!"), as_read("It is 7!"), as_read("It is 2e-3.")
    ('$7!$', 'It is 7!', 'It is $2 \\\\times 10^{-3}$.')
    """
    if "$" in text or "\\(" in text or "\\[" in text:
        return as_formula(text)
    plain = unicodedata.normalize("NFKC", text).replace("\u2044", "/")
    if _NEEDS_FORMULA.search(plain) and not _WORD.search(_SCIENTIFIC.sub("", plain)):
        return f"${as_formula(plain.strip())}$"
    return _SCIENTIFIC.sub(r"$\1 \\times 10^{\2}$", plain)


def numbers_differ(gold: list[Any], found: list[Any]) -> bool:
    """Whether the numbers of two formulas that math-verify takes for equal are not.

    `gold` and `found` are its parsed forms: sympy expressions, then texts.
    """
    one, other = _expression(gold), _expression(found)
    mine, theirs = _values(one), _values(other)
    if mine is None or theirs is None or len(mine) != len(theirs):
        return False
    percent = any("%" in str(text) for text in (*gold[1:], *found[1:]))
    factors = (1, 100, 0.01) if percent else (1,)
    return all(any(_apart(a * factor, b) for a, b in zip(mine, theirs, strict=True)) for factor in factors)


def _expression(parsed: list[Any]) -> Any:
    return next((one for one in parsed if not isinstance(one, str)), None)


def _values(expression: Any) -> list[Any] | None:
    """The expressions of which a formula is made, in an order of their own; None for what is not compared."""
    import sympy  # pyright: ignore[reportMissingTypeStubs]

    library: Any = sympy
    if isinstance(expression, library.Equality):
        return [expression.rhs]
    if isinstance(expression, library.Interval):
        return [expression.start, expression.end]
    if isinstance(expression, library.MatrixBase | library.Tuple):
        return list(expression)
    if isinstance(expression, library.FiniteSet):
        return sorted(expression.args, key=lambda one: (complex(_number(one) or 0).real, str(one)))
    return [expression] if isinstance(expression, library.Expr) else None


def _apart(one: Any, other: Any) -> bool:
    import sympy  # pyright: ignore[reportMissingTypeStubs]

    library: Any = sympy
    first, second = _number(one), _number(other)
    if first is None or second is None:
        return False
    exact = not (one.atoms(library.Float) or other.atoms(library.Float))
    distance, scale = abs(first - second), max(abs(first), abs(second))
    if not exact and (first == 0 or second == 0):
        return bool(distance > _SAME_AS_ZERO)
    return bool(distance > (_EXACT if exact else TOLERANCE) * scale)


def _number(expression: Any) -> Any:
    """The value at fixed values of its symbols; None where it has no finite one."""
    import sympy  # pyright: ignore[reportMissingTypeStubs]

    library: Any = sympy
    if not isinstance(expression, library.Expr):
        return None
    symbols = sorted(expression.free_symbols, key=str)
    at = {symbol: library.Rational(17 + 6 * number, 13) for number, symbol in enumerate(symbols)}
    value = library.N(expression.subs(at), _DIGITS)
    return value if value.is_number and value.is_finite else None
