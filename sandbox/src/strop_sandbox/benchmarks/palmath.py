"""PAL-Math: a question of mathematics, answered by a Python function `solution()` that is run."""

from __future__ import annotations

import base64
import binascii

import orjson

from strop_sandbox.benchmarks.benchmark import Attempt, Benchmark, Problem
from strop_sandbox.cases import Case
from strop_sandbox.errors import RequestError
from strop_sandbox.extraction import fenced_blocks
from strop_sandbox.wire import TestConfig

_CALL = """
if __name__ == "__main__":
    import os as _os
    _out = _os.dup(1)
    _os.dup2(2, 1)
    _value = solution()
    _os.write(_out, str(_value).encode())
"""
_JUDGE = r"""
import importlib.util, math, re, resource, sys

resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
_, said, wanted = (open(name, encoding="utf-8", errors="replace").read().strip() for name in sys.argv[1:])

def plain(text):
    text = text.replace("\n", "").rstrip(".").replace("\\left", "").replace("\\right", "")
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = re.sub(r"\\(?:text|mbox)\{[^{}]*\}$", "", text).strip() or text
    text = re.sub(r"\\text\{([^{}]*)\}", r"\1", text)
    for gone in ("^{\\circ}", "^\\circ", "\\$", "$", "\\%", "%", "\\!", "\\ ", " "):
        text = text.replace(gone, "")
    text = re.sub(r"^[a-zA-Z]{1,2}=", "", text)
    return re.sub(r"(\d)\.0+(?!\d)", r"\1", text)

def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None

def parts(text):
    pairs = {"(": ")", "[": "]"}
    if len(text) < 2 or pairs.get(text[0]) != text[-1] or "," not in text:
        return None
    return text[1:-1].split(",")

KNOWN = {"sqrt", "frac", "pi", "cdot", "sin", "cos", "tan", "log", "exp"}

def expression(text):
    names = set(re.findall(r"[^\W\d]\w*", text))
    towers = re.search(r"(?:\^|\*\*)[^+*/,]*(?:\^|\*\*)", text)
    if len(text) > 300 or towers or "_" in text or any(len(name) > 1 and name not in KNOWN for name in names):
        raise ValueError("no plain expression")
    from sympy.parsing.sympy_parser import parse_expr, standard_transformations, convert_xor
    text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))", text)
    text = re.sub(r"\\sqrt\{([^{}]*)\}", r"sqrt(\1)", text).replace("\\pi", "pi").replace("\\cdot", "*")
    return parse_expr(text.replace("\\", ""), transformations=(*standard_transformations, convert_xor))

def same(one, other):
    a, b = number(one), number(other)
    if a is not None and b is not None:
        return any(math.isclose(c, a, rel_tol=1e-4) for c in (b / 100, b, b * 100))
    if one == other:
        return True
    ours, theirs = parts(one), parts(other)
    if ours and theirs:
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if importlib.util.find_spec("sympy") is None:
        print("PAL-Math wants sympy beside the interpreter that programs run with", file=sys.stderr)
        sys.exit(3)
    try:
        from sympy import N, simplify
        a, b = expression(one), expression(other)
        return simplify(a - b) == 0 or math.isclose(N(a), N(b), rel_tol=1e-3)
    except Exception:
        return False

sys.exit(0 if said and same(plain(said), plain(wanted)) else 1)
"""
"""Numbers by value, also as percentages; else texts, then expressions. It runs in a box of its own.

SymPy evaluates what it parses: only names that are known come to it, for the judge's end is the verdict.
"""


def _prompt(problem: Problem, config: TestConfig) -> str:
    return problem.text("content", "prompt", "question")


def _wanted(problem: Problem) -> str:
    if (answer := problem.find("answer")) is not None:
        return str(answer)
    _, files = problem.test_program()
    try:
        return str(orjson.loads(base64.b64decode(files["answer.json"], validate=True))["gt"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise RequestError(
            f"problem {problem.id!r} has no answer", fix="give answer, or test.asset with answer.json {gt}"
        ) from error


def _attempt(problem: Problem, completion: str, config: TestConfig) -> Attempt:
    blocks = fenced_blocks(completion)
    code = next((block.code for block in blocks if "def solution(" in block.code), "")
    return Attempt(
        code=code,
        found="fenced" if code else "empty",
        language="python",
        program=f"{code}\n{_CALL}",
        cases=(Case("", _wanted(problem)),),
        judge=_JUDGE,
        is_right=None if code else False,
    )


PAL_MATH = Benchmark(
    name="PalMathDataset",
    datasets=("*palmath*", "*pal_math*"),
    needs=(("content", "prompt", "question"), ("answer", "test")),
    prompt=_prompt,
    attempt=_attempt,
)
