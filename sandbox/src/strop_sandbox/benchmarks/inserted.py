"""Benchmarks whose test is a program with a place for the answer: MBXP, HumanEval-DS, OOD, Aider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strop_sandbox.benchmarks.assembly import inside_class, python_tests, without_main, without_public
from strop_sandbox.benchmarks.benchmark import Attempt, Benchmark, Problem
from strop_sandbox.errors import RequestError
from strop_sandbox.extraction import all_blocks, canonical, extract
from strop_sandbox.wire import TestConfig

_INSERT = "#<INSERT>"
_WORDS = {
    "en": ("Question:", "Answer:", "Please answer in English with Markdown format."),
    "zh": ("问题：", "答案：", "请用中文回答，并用 Markdown 格式。"),
}
_LINE = "----------------"


def _words(problem: Problem, config: TestConfig) -> tuple[str, str, str]:
    chinese = config.locale == "zh" or (config.locale is None and "_zh" in problem.dataset.lower())
    return _WORDS["zh" if chinese else "en"]


def _mbxp_prompt(problem: Problem, config: TestConfig) -> str:
    question_word, answer_word, asked = _words(problem, config)
    question, context = problem.text("content", "prompt"), problem.find("docs")
    parts = [str(context)] if context else []
    if config.is_fewshot:
        parts += [_LINE] if context else []
        parts.append(_fewshot(problem, config))
    elif config.extra.get("autoeval_wrap_prompt"):
        return "\n\n".join([*parts, f"{asked}\n{question}\n{answer_word}\n"])
    if not parts:
        return question
    return "\n\n".join([*parts, f"{question_word}{question}", f"{answer_word}\n"])


def _fewshot(problem: Problem, config: TestConfig) -> str:
    own: Any = config.extra.get("autoeval_custom_fewshot", {})
    if not isinstance(own, Mapping):
        raise RequestError("extra.autoeval_custom_fewshot is an object: a task's kind to its examples")
    kind = str(problem.find("task_id") or "").split("/")[0]
    found: Any = own.get(kind) or own.get("default") or problem.find("fewshot")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not isinstance(found, str):
        raise RequestError(
            f"problem {problem.id!r} has no examples", fix="give labels.fewshot, or leave out is_fewshot"
        )
    return found


def _mbxp(problem: Problem, completion: str, config: TestConfig) -> Attempt:
    written = str(problem.need("programming_language", "language"))
    language = canonical(str(problem.find("execution_language") or written))
    code, found = _extracted(completion, canonical(written), config)
    test, files = problem.test_program()
    if language == "java":
        code = _java(code, problem)
    elif canonical(written) in ("c", "cpp", "python", "go"):
        code = without_main(code, canonical(written))
    if language == "python":
        test = python_tests(test)
    program = test.replace(_INSERT, code) if _INSERT in test else f"{code}\n{test}"
    return Attempt(code=code, found=found, language=language, program=program, test_code=test, files=files)


def _extracted(completion: str, language: str, config: TestConfig) -> tuple[str, Any]:
    mode = config.extra.get("autoeval_extract_code_mode", "first")
    if mode not in ("first", "all"):
        raise RequestError(f"extra.autoeval_extract_code_mode is first or all, found {mode!r}")
    return extract(completion, language) if mode == "first" else all_blocks(completion, language)


def _java(code: str, problem: Problem) -> str:
    """HumanEval-DS has a class of its own around the answer's methods."""
    if problem.dataset.lower().startswith("humanevalds"):
        return without_main(inside_class(code), "java")
    code = without_public(code)
    if "class Main" not in code:
        return code
    return without_main(code, "java").replace("class Main", "class Solution")


MBXP = Benchmark(
    name="MBXPDataset",
    datasets=("*mbxp*", "humanevalds*", "oodtest*"),
    needs=(("content", "prompt"), ("test",), ("programming_language", "language")),
    prompt=_mbxp_prompt,
    attempt=_mbxp,
    compile_s=30.0,
    run_s=30.0,
)


def _aider_prompt(problem: Problem, config: TestConfig) -> str:
    form = "Please generate the code in the following format:"
    asked = f"\n{problem.text('content')}\n\n{form}\n```python\n{problem.text('reference')}\n```\n"
    if config.extra.get("autoeval_wrap_prompt"):
        return f"{_WORDS['en'][2]} Below is the problem:\n{asked}\nYour response here:\n"
    return asked


def _aider(problem: Problem, completion: str, config: TestConfig) -> Attempt:
    code, found = extract(completion, "python")
    test, files = problem.test_program()
    program = python_tests(test).replace(_INSERT, code)
    return Attempt(code=code, found=found, language="python", program=program, test_code=test, files=files)


AIDER = Benchmark(
    name="AiderBenchmarkDataset",
    datasets=("*aider*",),
    needs=(("content",), ("test",), ("reference",)),
    prompt=_aider_prompt,
    attempt=_aider,
    run_s=60.0,
)
