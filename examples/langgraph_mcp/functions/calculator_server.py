"""A calculator that speaks MCP: `python functions/calculator_server.py` serves http://127.0.0.1:10086/sse."""

from __future__ import annotations

import argparse
import ast
import operator
import os
import socket
import sys
import threading
from collections.abc import Callable

import uvicorn
from mcp.server.fastmcp import FastMCP

mcp = FastMCP("calculator", host="127.0.0.1", port=10086, log_level="WARNING")

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@mcp.tool()
def calculate(expression: str) -> str:
    """Compute numbers with + - * / and brackets."""
    # What is raised here reaches the agent as the tool's error, for the model to read.
    if len(expression) > 100:
        raise ValueError("the expression is too long")
    try:
        value = _value(ast.parse(expression, mode="eval").body)
        return str(int(value)) if value == int(value) else f"{value:.6g}"
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except (SyntaxError, ValueError, RecursionError, OverflowError):
        raise ValueError("only numbers and + - * / are allowed") from None


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, help="a listening socket to serve, until stdin is closed")
    fd: int | None = parser.parse_args().fd
    if fd is None:
        mcp.run(transport="sse")
        return
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    server = uvicorn.Server(uvicorn.Config(mcp.sse_app(), log_level="warning"))
    server.run(sockets=[socket.socket(fileno=fd)])


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
