"""MultiPL-E: HumanEval and MBPP in other languages, as prompts with tests that are put behind the answer."""

from __future__ import annotations

import re
from typing import Any

from strop_sandbox.benchmarks.assembly import (
    go_program,
    with_imports,
    without_last_braces,
    without_main,
    without_public,
)
from strop_sandbox.benchmarks.benchmark import Attempt, Benchmark, Problem
from strop_sandbox.errors import RequestError
from strop_sandbox.extraction import canonical, extract
from strop_sandbox.wire import TestConfig

_NOT_RUN = {"cs": "csharp", "d": "D_ut", "jl": "julia", "rkt": "racket"}
_ENDS = {"lua": "\nend", "ruby": "\nend", "cpp": "\n}", "typescript": "\n}", "perl": "\n}", "R": "\n}"} | {
    "go": "\n}",
    "nodejs": "\n}",
    "php": "\n}",
}
"""What ends a function: what a model says after it, without being asked, is not part of its answer."""


def language_of(problem: Problem) -> str:
    """`go_test.go` and the like are go; without a word of it, HumanEval's own, Python."""
    named = str(problem.find("language", "programming_language") or "") or _of_dataset(problem.dataset)
    word = named.split(".")[0].removesuffix("_test") or "python"
    return _NOT_RUN.get(word, canonical(word))


def _of_dataset(name: str) -> str:
    found = re.fullmatch(r"(?:multiple|humaneval|mbpp)[_-](\w+)", name.lower())
    return found[1] if found else ""


_ASK = {
    "en": "Please complete the code above as its comment asks. Answer with the whole program in a code "
    "block, without a `main` function.",
    "zh": "请按照注释的要求补全以上代码，用代码块给出完整程序，不要包含 `main` 函数。",
}


def complete_prompt(problem: Problem, config: TestConfig) -> str:
    """The beginning of a program; with `extra.is_freeform`, the wish to have it completed."""
    start = problem.text("prompt", "complete_prompt", "content")
    if not config.extra.get("is_freeform"):
        return start
    return f"```{language_of(problem)}\n{start}\n```\n\n{_ASK['zh' if config.locale == 'zh' else 'en']}"


def _attempt(problem: Problem, completion: str, config: TestConfig) -> Attempt:
    language, tests = language_of(problem), problem.text("tests")
    if config.extra.get("is_freeform"):
        code, found = extract(completion, language)
        functions = _whole(code, language, tests)
    else:
        code, found = _cut(completion, problem, language), None
        functions = f"{problem.text('prompt', 'content')}\n{code}"
    program = f"{functions}\n{tests}"
    if language == "java":
        program = re.sub(r"\bclass\s+Problem\b", "class Main", without_public(program))
    if language == "go":
        language, program = "go_test", go_program(program)
    if language == "php" and "<?" not in program.split("\n")[0]:
        program = "<?php\n" + program.replace("<?php", "")
    program = with_imports(program, language)
    return Attempt(code=code, found=found, language=language, program=program, test_code=tests)


def _whole(code: str, language: str, tests: str) -> str:
    """A whole answer, without the braces that the tests begin with."""
    code = without_main(code, language)
    if language == "php":
        code = code.replace("?>", "")
    if language == "java" and not re.search(r"\bclass\s+(?:Problem|Main)\b", code):
        code = re.sub(r"\bpublic\s+(?:final\s+)?class\s+\w+", "class Problem", code, count=1)
        code = code if "class Problem" in code else f"class Problem {{\n{code}\n}}"
    if not tests.lstrip().startswith("}"):
        return code
    return without_last_braces(code, 2 if language == "java" else 1)


def _cut(completion: str, problem: Problem, language: str) -> str:
    stops: Any = problem.find("stop_tokens") or []
    if not isinstance(stops, list) or not all(isinstance(one, str) for one in stops):  # pyright: ignore[reportUnknownVariableType]
        raise RequestError(f"problem {problem.id!r}: stop_tokens is a list of texts")
    for stop in (one for one in stops if one and one != "\n\n"):  # pyright: ignore[reportUnknownVariableType]
        completion = completion.split(stop)[0]  # pyright: ignore[reportUnknownArgumentType]
    end = _ENDS.get(language)
    if end is not None and end in completion:
        completion = completion[: completion.index(end)] + end
    return completion


MULTIPLE = Benchmark(
    name="MultiPLEDataset",
    datasets=("multiple_*", *(f"{base}[_-]{code}" for base in ("humaneval", "mbpp") for code in (
        *("cpp", "cs", "d", "go", "java", "jl", "js", "lua", "php", "pl", "r", "rb", "rkt", "rs", "scala"),
        *("sh", "swift", "ts"),
    ))),
    needs=(("prompt", "content"), ("tests",)),
    prompt=complete_prompt,
    attempt=_attempt,
)  # fmt: skip
