"""LiveCodeBench: competition tasks, by standard input or by a function, judged case by case.

The program never sees an expected value: a function's arguments come on standard input, and what it gives
goes to standard output and is compared outside.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import re
import zlib
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson

from strop_sandbox.benchmarks.assembly import without_main
from strop_sandbox.benchmarks.benchmark import Attempt, Benchmark, Problem
from strop_sandbox.cases import Case
from strop_sandbox.errors import RequestError
from strop_sandbox.extraction import extract
from strop_sandbox.wire import TestConfig

_MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "json", "builtins", "typing"),
)
_IMPORTS = "".join(f"from {name} import *\n" for name in _MODULES) + "import sys\n" + "".join(
    f"import {name}\n" for name in _MODULES if name not in ("copy", "datetime", "typing", "builtins")
)  # fmt: skip
_CALL = """
if __name__ == "__main__":
    import json as _json, os as _os, sys as _sys
    _given = [_json.loads(_line) for _line in _sys.stdin.read().split("\\n") if _line.strip()]
    _out = _os.dup(1)
    _os.dup2(2, 1)
    _place = Solution() if "Solution" in globals() else None
    _value = (getattr(_place, {name!r}) if _place is not None else globals()[{name!r}])(*_given)
    _os.write(_out, _json.dumps(_value).encode())
"""
"""Writes what the function gives, and nothing that it printed."""

_MAX_TEST_BYTES = 256 * 1024 * 1024
_BROKEN = (ValueError, TypeError, AttributeError, OverflowError, EOFError, IndexError, KeyError)
"""What else is raised on reading what is not a pickle."""


class _Plain(pickle.Unpickler):
    """The benchmark's files hold a pickled text; nothing that would be run is loaded from one."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise pickle.UnpicklingError(f"a test is plain data, found {module_name}.{global_name}")


def _plain(value: object, place: str) -> Any:
    """JSON, or the benchmark's base64 of a compressed pickle of JSON or of plain data.

    Raises:
        RequestError: neither.
    """
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        pass
    try:
        unpacking = zlib.decompressobj()
        packed = unpacking.decompress(base64.b64decode(value, validate=True), _MAX_TEST_BYTES)
        if unpacking.unconsumed_tail:
            raise RequestError(f"{place} unpacks to more than {_MAX_TEST_BYTES} bytes")
        found = _Plain(io.BytesIO(packed)).load()
        return orjson.loads(found) if isinstance(found, str | bytes) else found
    except (pickle.UnpicklingError, zlib.error, *_BROKEN) as error:
        raise RequestError(f"{place} is neither JSON nor LiveCodeBench's packed form: {error}") from error


def _cases(problem: Problem) -> tuple[list[Case], str | None]:
    """The cases, and the name of the function that they call, if they do."""
    place = f"problem {problem.id!r}: test"
    if problem.find("test") is not None:
        both = _plain(_field(_plain(problem.need("test"), place), "input_output"), place)
        inputs, outputs = _field(both, "inputs"), _field(both, "outputs")
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):  # pyright: ignore[reportUnknownArgumentType]
            raise RequestError(f"{place} has no input_output with as many inputs as outputs")
        pairs = zip(inputs, outputs, strict=True)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return [Case(_lines(one), _lines(other)) for one, other in pairs], _field(both, "fn_name")  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    cases: list[Case] = []
    for name in ("public_test_cases", "private_test_cases"):
        place = f"problem {problem.id!r}: {name}"
        for row in _plain(problem.find(name) or [], place):
            given, wanted = _field(row, "input"), _field(row, "output")
            if not isinstance(given, str) or not isinstance(wanted, str):
                raise RequestError(f"{place} is a list of {{input, output}}, texts")
            cases.append(Case(given, wanted))
    metadata = _plain(problem.find("metadata") or {}, f"problem {problem.id!r}: metadata")
    return cases, _field(metadata, "func_name") or None


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _lines(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _attempt(problem: Problem, completion: str, config: TestConfig) -> Attempt:
    code, found = extract(completion, "python")
    cases, function = _cases(problem)
    if not cases:
        raise RequestError(f"problem {problem.id!r} has no case")
    if function is not None and not str(function).isidentifier():
        raise RequestError(f"problem {problem.id!r}: {function!r} is not the name of a function")
    call = _CALL.format(name=function) if function else ""
    return Attempt(
        code=code,
        found=found,
        language="python",
        program=f"{_IMPORTS}{without_main(code, 'python') if function else code}\n{call}",
        test_code=call or None,
        cases=tuple(cases),
        accepts=_same_value if function else _same_lines,
    )


def _same_value(said: str, expected: str, *, strict: bool) -> bool:
    if said.strip() == expected.strip():
        return True
    try:
        return json.loads(said) == json.loads(expected)  # whose whole numbers are exact, however large
    except (ValueError, RecursionError):
        return False


def _same_lines(said: str, expected: str, *, strict: bool) -> bool:
    """Line by line without the spaces at their ends; else number by number, exactly.

    >>> _same_lines("1.50 2\\n", "1.5 2", strict=False), _same_lines("1.50 2\\n", "1.5 2", strict=True)
    (True, False)
    """
    ours, theirs = ([line.strip() for line in text.strip().split("\n")] for text in (said, expected))
    if len(ours) != len(theirs):
        return False
    pairs = [(one, other) for one, other in zip(ours, theirs, strict=True) if one != other]
    if strict:
        return not pairs
    return all(_numbers(one) == _numbers(other) is not None for one, other in pairs)


def _numbers(line: str) -> list[Decimal] | None:
    try:
        numbers = [Decimal(word) for word in line.split()]
    except InvalidOperation:
        return None
    return None if any(one.is_nan() for one in numbers) else numbers  # one that signals cannot be compared


_TASK = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will "
    "generate a correct Python program that matches the specification and passes all tests."
)
_STDIN = (
    "### Format: Read the inputs from stdin, solve the problem and write the answer to stdout (do not test "
    "on the sample inputs). Put the code into a code block.\n```python\n# YOUR CODE HERE\n```\n"
)
_START = "### Format: Write the solution with this starter code, in a code block.\n```python\n{}\n```\n"
_ANSWER = "### Answer: (with the code block)\n"
_EXAMPLES = (
    ("Read twelve amounts of money, a line each. Print a dollar sign and their mean, with two digits "
     "after the point.\n\nSample input\n\n" + "\n".join(
        ("100.00", "489.12", "12454.12", "1234.10", "823.05", "109.20", "5.27", "1542.25", "839.18", "83.99",
         "1295.01", "1.75")
     ) + "\n\nSample output\n\n$1581.42", _STDIN,
     'print("$%.2f" % (sum(float(input()) for _ in range(12)) / 12))'),
    ("Given a list of integers, return the number of those that are even.", _START.format(
        "class Solution:\n    def countEven(self, nums: List[int]) -> int:\n        "
     ), "class Solution:\n    def countEven(self, nums: List[int]) -> int:\n"
        "        return sum(num % 2 == 0 for num in nums)"),
)  # fmt: skip


def _prompt(problem: Problem, config: TestConfig) -> str:
    content = problem.find("content")
    if content is None:
        starter = str(problem.find("starter_code") or "")
        form = _START.format(starter) if starter else _STDIN
        content = f"{_TASK}\n### Question:\n{problem.text('question_content')}\n\n{form}\n{_ANSWER}"
    if not config.is_fewshot:
        return str(content)
    question = re.search(r"### Question:\n.*", str(content), re.S)
    shown = "\n\n".join(
        f"### Question:\n{asked}\n\n{form}\n{_ANSWER}```python\n{code}\n```"
        for asked, form, code in _EXAMPLES
    )
    return f"{_TASK}\n\n{shown}\n\n{question[0] if question else content}"


LIVE_CODE_BENCH = Benchmark(
    name="LiveCodeBenchDataset",
    datasets=("*live_code_bench*", "*livecodebench*", "*code_generation_lite*"),
    needs=(("content", "question_content"), ("test", "public_test_cases", "private_test_cases")),
    prompt=_prompt,
    attempt=_attempt,
    run_s=6.0,
)
