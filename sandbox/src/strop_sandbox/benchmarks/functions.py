"""Benchmarks that ask for one Python function and test it: HumanEval, EvoEval, BigCodeBench, MBPP, MHPP."""

from __future__ import annotations

import re
from typing import Any

from strop_sandbox.benchmarks.assembly import python_tests, with_imports, without_main
from strop_sandbox.benchmarks.benchmark import Attempt, Benchmark, Problem
from strop_sandbox.benchmarks.multiple import MULTIPLE, complete_prompt
from strop_sandbox.errors import RequestError
from strop_sandbox.extraction import extract
from strop_sandbox.wire import TestConfig

_NEXT_STATEMENT = re.compile(r"\n(?=\S)")
_RUN_UNITTEST = "import unittest\nassert unittest.main(argv=['tests'], exit=False).result.wasSuccessful()"


def _complete(problem: Problem, completion: str, config: TestConfig) -> tuple[str, str, Any]:
    """The code, the functions that are tested, and how the code was found.

    With `extra.is_freeform` the answer holds a whole program; without, it goes on where the prompt ends and
    is cut where another statement begins.
    """
    if config.extra.get("is_freeform"):
        code, found = extract(completion, "python")
        return code, without_main(code, "python"), found
    following = _NEXT_STATEMENT.search(completion)
    body = completion[: following.start()] if following else completion
    start = problem.text("prompt", "complete_prompt", "content")
    return body, f"{start}\n{body}", None


def _human_eval(problem: Problem, completion: str, config: TestConfig) -> Attempt:
    if problem.find("tests") is not None:
        return MULTIPLE.attempt(problem, completion, config)
    code, functions, found = _complete(problem, completion, config)
    test = problem.text("test")
    checks = f"\ncheck({problem.text('entry_point')})" if re.search(r"^def check\(", test, re.M) else ""
    if "unittest" in test and not checks:
        checks = f"\n{_RUN_UNITTEST}"
    program = with_imports(f"{functions}\n{test}{checks}\n", "python")
    return Attempt(code=code, found=found, language="python", program=program, test_code=test + checks)


def _human_eval_prompt(problem: Problem, config: TestConfig) -> str:
    if config.extra.get("is_freeform") and (asked := problem.find("instruct_prompt")):
        return str(asked)
    return complete_prompt(problem, config)


HUMAN_EVAL = Benchmark(
    name="HumanEvalDataset",
    datasets=("*humaneval*",),
    needs=(("prompt", "content"), ("test", "tests")),
    prompt=_human_eval_prompt,
    attempt=_human_eval,
)
BIG_CODE_BENCH = Benchmark(
    name="BigCodeBenchDataset",
    datasets=("*bigcodebench*",),
    needs=(("complete_prompt", "prompt", "content"), ("test",)),
    prompt=_human_eval_prompt,
    attempt=_human_eval,
    run_s=60.0,
)
EVO_EVAL = Benchmark(
    name="EvoEvalDataset",
    datasets=("*evoeval*",),
    needs=(("prompt", "content"), ("test",), ("entry_point",)),
    prompt=_human_eval_prompt,
    attempt=_human_eval,
    category="r.id.removeprefix('EvoEval_').split('_EvoEval')[0] if '_EvoEval' in r.id else 'all'",
)


def _mbpp_tests(problem: Problem) -> list[str]:
    tests = problem.json("test_list")
    if not isinstance(tests, list) or not tests or not all(isinstance(one, str) for one in tests):  # pyright: ignore[reportUnknownVariableType]
        raise RequestError(f"problem {problem.id!r}: test_list is a list of asserts, and not empty")
    return tests  # pyright: ignore[reportUnknownVariableType]


def _mbpp_prompt(problem: Problem, config: TestConfig) -> str:
    tests = _mbpp_tests(problem)
    shown = tests[:2] if config.is_fewshot else tests
    task = problem.text("content", "text", "prompt")
    asked = (
        f"You are an expert Python programmer, and here is your task: {task} "
        f"Your code should pass these tests:\n\n" + "\n".join(shown)
    )
    if not config.is_fewshot:
        return asked
    examples = config.extra.get("fewshot") or problem.find("fewshot")
    if not isinstance(examples, str):
        raise RequestError("config.is_fewshot needs the examples", fix="give them as config.extra.fewshot")
    return f"{examples.rstrip()}\n{asked}\n[BEGIN]\n"


def _mbpp(problem: Problem, completion: str, config: TestConfig) -> Attempt:
    code, found = extract(completion.split("[DONE]")[0], "python")
    for stop in ("\nassert", '\n"""'):
        code = code.split(stop)[0]
    code = without_main(code, "python")
    if setup := problem.find("test_setup_code"):
        code = f"{setup}\n{code}"
    given: Any = problem.find("test_imports")
    imports = [str(line) for line in given] if isinstance(given, list) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    tests = _mbpp_tests(problem)
    checks = "\n".join([*imports, *(tests[-1:] if config.is_fewshot else tests)])
    return Attempt(code=code, found=found, language="python", program=f"{code}\n{checks}\n", test_code=checks)


MBPP = Benchmark(
    name="MBPPDataset",
    datasets=("*mbpp*",),
    needs=(("content", "text", "prompt"), ("test_list",)),
    prompt=_mbpp_prompt,
    attempt=_mbpp,
)


def _mhpp_prompt(problem: Problem, config: TestConfig) -> str:
    asked = problem.text("content", "prompt")
    if config.extra.get("pretrain_mode"):
        asked, _ = extract(asked, "python")
    start, quotes, _ = asked.rpartition('"""')
    if not quotes:
        return asked
    example = problem.text("test").split("\n", 1)[0]
    return f"{start}\n    e.g. {example} {quotes}"


def _mhpp(problem: Problem, completion: str, config: TestConfig) -> Attempt:
    code, found = extract(completion, "python")
    if not code.strip():
        code, found = extract(f"{problem.text('content', 'prompt')}\n{completion}", "python")
    test = problem.text("test")
    return Attempt(
        code=code,
        found=found,
        language="python",
        program=f"{code}\n{python_tests(test)}\n",
        test_code=test,
        to_the_end=False,  # the reference's own test has an answer that leaves, and is accepted
    )


MHPP = Benchmark(
    name="MHPPDataset",
    datasets=("*mhpp*",),
    needs=(("content", "prompt"), ("test",)),
    prompt=_mhpp_prompt,
    attempt=_mhpp,
    category="r.tests[0].test_info['difficulty_type']",
)
