"""How benchmarks compare what a program said, and what they make of an answer: without running anything."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from strop_sandbox.benchmarks import BENCHMARKS
from strop_sandbox.benchmarks.assembly import go_program, with_end, without_main
from strop_sandbox.benchmarks.benchmark import Attempt, Problem
from strop_sandbox.wire import TestConfig


def attempt(kind: str, row: dict, completion: str) -> Attempt:
    return BENCHMARKS[kind].attempt(Problem(row), completion, TestConfig())


CALLED = {"public_test_cases": '[{"input": "1", "output": "1"}]', "metadata": '{"func_name": "f"}'}
SPOKEN = {"public_test_cases": '[{"input": "1", "output": "1"}]'}


@pytest.mark.parametrize(
    ("row", "said", "wanted", "same"),
    [(CALLED, "100000000000000000001", "100000000000000000000", False), (CALLED, "[1.0]", "[1]", True),
     (CALLED, "NaN", "NaN", True), (CALLED, "[" * 100_000, "[]", False), (CALLED, "9" * 5000, "9", False),
     (SPOKEN, "sNaN", "1", False), (SPOKEN, "NaN 1.0", "1 1", False), (SPOKEN, "1.0 2", "1 2.00", True)],
)  # fmt: skip
def test_what_livecodebench_hears_is_compared_exactly_and_never_fails(row, said, wanted, same) -> None:
    accepts = attempt("LiveCodeBenchDataset", row, "```python\ndef f(x): return x\n```").accepts
    assert accepts is not None
    assert accepts(said, wanted, strict=False) is same


def test_an_answer_s_own_start_is_not_run_where_its_function_is_called() -> None:
    answer = "```python\ndef f(x): return x\n\nif __name__ == '__main__':\n    print(f(int(input())))\n```"
    assert "input()" not in attempt("LiveCodeBenchDataset", CALLED, answer).program
    assert "input()" in attempt("LiveCodeBenchDataset", SPOKEN, answer).program


BRACES = (
    "}}\nint main() {{\n  assert(candidate({text}) == false); // {{\n  assert(candidate('{{') == true);\n}}\n"
)


@pytest.mark.parametrize("text", ['"()[{)"', '"}"', '"\\"{"'])
def test_a_brace_within_a_text_ends_nothing(text: str) -> None:
    program = "bool f(string s) {\n  return true;\n" + BRACES.format(text=text)
    assert with_end(program, "cpp", "word") == program[:-2] + 'std::puts("word"); return 0;\n}\n'
    assert without_main(program, "cpp") == "bool f(string s) {\n  return true;\n}\n\n"


def test_where_the_end_of_main_cannot_be_found_the_program_is_left_as_it_is() -> None:
    assert with_end("int main() {\n  if (true) {\n}\n", "cpp", "word") is None


def test_each_of_java_s_types_has_its_annotation_and_its_file() -> None:
    code = "public class Twice {\n    char open = '{';\n}\n\n"
    code += "@FunctionalInterface\ninterface Maker { int make(int x); }\n"
    row = {"prompt": "?", "testcases": "class T {}", "programming_language": "java"}
    files = attempt("NaturalCodeBenchDataset", row, f"```java\n{code}```").files
    written = {name: base64.b64decode(text).decode().strip() for name, text in files.items()}
    assert written == {
        "Twice.java": "public class Twice {\n    char open = '{';\n}",
        "Maker.java": "@FunctionalInterface\ninterface Maker { int make(int x); }",
    }


def test_a_prompt_of_mhpp_without_a_docstring_stands_as_it_is() -> None:
    row = {"content": "def last(text):\n    '''The last sign.'''\n", "test": "assert last('ab') == 'b'"}
    assert BENCHMARKS["MHPPDataset"].prompt(Problem(row), TestConfig()) == row["content"]


@pytest.mark.parametrize(("said", "status"), [("9", 0), ("8", 1), ("x+1", 3)])
def test_palmath_s_judge_gives_no_verdict_without_sympy(tmp_path: Path, said: str, status: int) -> None:
    row = {"id": 1, "question": "?", "answer": "9" if said != "x+1" else "1+x"}
    judge = attempt("PalMathDataset", row, "```python\ndef solution(): return 9\n```").judge
    for name, text in (("in", ""), ("out", said), ("ans", row["answer"])):
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-I", "-S", "-c", judge, "in", "out", "ans"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == status
    assert ("wants sympy" in done.stderr) is (status == 3)


def test_imports_of_go_keep_their_other_names_and_lose_what_nobody_calls() -> None:
    program = """package main
import m "math"
import (
    "strings"
    "math/rand/v2"
    _ "embed"
)
package other
import "os"
func half(x float64) float64 { return m.Floor(x/2) + rand.Float64() }
"""
    whole = go_program(program)
    assert whole.startswith('package main\n\nimport (\n\t"math/rand/v2"\n\t_ "embed"\n\tm "math"\n)\n')
    assert whole.count("import") == 1
    assert "package other" not in whole
    assert go_program('import "v2"') == "package main\n\nimport (\n)\n"
