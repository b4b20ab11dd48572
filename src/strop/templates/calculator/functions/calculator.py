"""Expression -> number: the tool. Only + - * / on numbers; anything else is an error that the model reads."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

CALL = re.compile(r"<calc>(.*?)</calc>", re.DOTALL)

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def find_call(text: str) -> str | None:
    """The expression of the first `<calc>...</calc>`, if there is one."""
    match = CALL.search(text)
    return match.group(1).strip() if match else None


def calculate(expression: str) -> str:
    """Evaluate and write the result as a person would.

    >>> calculate("762 + 163")
    '925'
    >>> calculate("1 / 0")
    'error: division by zero'
    >>> calculate("open('x')")
    'error: only numbers and + - * / are allowed'
    """
    if len(expression) > 100:
        return "error: the expression is too long"
    try:
        value = _value(ast.parse(expression.replace("×", "*").replace(",", ""), mode="eval").body)
        return str(int(value)) if value == int(value) else f"{value:.6g}"
    except ZeroDivisionError:
        return "error: division by zero"
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return "error: only numbers and + - * / are allowed"


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left), _value(right))
        case _:
            raise ValueError(ast.dump(node))
