"""NaturalCodeBench: a Python or Java answer, tested by pytest or JUnit."""

from __future__ import annotations

import base64
import re
from typing import Any

from strop_sandbox.benchmarks.assembly import braces
from strop_sandbox.benchmarks.benchmark import Attempt, Benchmark, Problem
from strop_sandbox.extraction import canonical, extract
from strop_sandbox.wire import TestConfig

_FILE = "test_answer.py"
_RUN_PYTEST = f"""
import os
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
import pytest
assert pytest.main(["-p", "no:cacheprovider", {_FILE!r}]) == 0
"""
_JUNIT = "import org.junit.jupiter.api.Test;\nimport static org.junit.jupiter.api.Assertions.*;\n"
_TYPE = re.compile(
    r"^[ \t]*(?:@(?!interface\b)\w+(?:\([^()\n]*\))?\s+)*"
    r"(?:(?:public|final|abstract|sealed)\s+)*(?:class|interface|enum|record|@interface)\s+(\w+)",
    re.M,
)


def _prompt(problem: Problem, config: TestConfig) -> str:
    return problem.text("content", "prompt")


def _attempt(problem: Problem, completion: str, config: TestConfig) -> Attempt:
    named = problem.find("programming_language", "execution_language")
    named = named or ("java" if "java" in problem.dataset.lower() else "python")
    test, files = problem.test_program()
    return (_java if canonical(str(named)) == "java" else _python)(completion, test, files)


def _python(completion: str, test: str, files: dict[str, Any]) -> Attempt:
    tagged = re.search(r"\[Python\](.*?)(?:\[/Python\]|\Z)", completion, re.S)
    code, found = extract(tagged[1] if tagged and "```" in tagged[1] else completion, "python")
    if tagged and "```" not in tagged[1]:
        code, found = tagged[1], None
    answer = f"import pytest\n\n{code}\n\n{test}\n"
    return Attempt(
        code=code,
        found=found,
        language="python",
        program=_RUN_PYTEST,
        test_code=test,
        files={**files, _FILE: base64.b64encode(answer.encode("utf-8", "surrogatepass")).decode()},
    )


def _java(completion: str, test: str, files: dict[str, Any]) -> Attempt:
    """Each of the answer's types gets a file of its own: it may be public, and the tests find it by name."""
    code, found = extract(completion, "java")
    named = {
        f"{name}.java": base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()
        for name, text in _types(code).items()
    }
    return Attempt(
        code=code, found=found, language="junit", program=f"{_JUNIT}{test}", test_code=test,
        files={**files, **named},
    )  # fmt: skip


def _types(code: str) -> dict[str, str]:
    """The types of a Java text by name, each with the imports of all."""
    imports = "".join(f"{line}\n" for line in re.findall(r"^\s*(import\s[^;\n]+;)", code, re.M))
    starts = [found for found in _TYPE.finditer(code) if _is_outermost(code, found.start())]
    ends = [found.start() for found in starts[1:]] + [len(code)]
    pieces = {
        found[1]: re.sub(r"^\s*(?:import|package)\s[^;\n]+;", "", code[found.start() : end], flags=re.M)
        for found, end in zip(starts, ends, strict=True)
    }
    return {name: f"{imports}{piece}" for name, piece in pieces.items()}


def _is_outermost(code: str, index: int) -> bool:
    return not sum(step for at, step in braces(code) if at < index)


NATURAL_CODE_BENCH = Benchmark(
    name="NaturalCodeBenchDataset",
    datasets=("ncb_*", "*natural_code_bench*", "*naturalcodebench*"),
    needs=(("content", "prompt"), ("test", "testcases")),
    prompt=_prompt,
    attempt=_attempt,
    run_s=40.0,
)
