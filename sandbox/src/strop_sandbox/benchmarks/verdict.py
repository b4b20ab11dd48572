"""An attempt -> right or wrong: run to its end, or case by case."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from strop_sandbox.benchmarks.assembly import with_end
from strop_sandbox.benchmarks.benchmark import Accepts, Attempt, Benchmark, Problem
from strop_sandbox.box import RunResult
from strop_sandbox.cases import Case
from strop_sandbox.checkers import ByJudge, Checker
from strop_sandbox.endings import new_word, python_to_its_end, tested
from strop_sandbox.errors import RequestError
from strop_sandbox.judging import Judging
from strop_sandbox.programs import Program
from strop_sandbox.sandbox import Sandbox
from strop_sandbox.wire import (
    EvalResult,
    RunCodeRequest,
    RunCodeResponse,
    RunStatus,
    SubmitRequest,
    TestConfig,
    TestResult,
)


async def judged(
    sandbox: Sandbox, benchmark: Benchmark, problem: Problem, request: SubmitRequest
) -> EvalResult:
    """Raises:
    RequestError: the row lacks a field, or an option cannot be meant.
    BoxError: the sandbox itself failed.
    """
    # Tests of a hundred megabytes may have to be unpacked: in a thread, others go on meanwhile.
    attempt = await asyncio.to_thread(benchmark.attempt, problem, request.completion, request.config)
    config = request.config
    if attempt.is_right is not None:
        status = RunStatus.SUCCESS if attempt.is_right else RunStatus.FAILED
        tests = [TestResult(passed=attempt.is_right, exec_info=RunCodeResponse(status=status))]
    elif attempt.cases:
        tests = await _by_cases(sandbox, benchmark, attempt, config)
    else:
        tests = [await run_to_its_end(sandbox, benchmark, attempt, config)]
    if benchmark.category:  # what its metrics go by
        labels = problem.labels
        tests = [test.model_copy(update={"test_info": labels}) for test in tests]
    return EvalResult(
        id=request.id,
        accepted=bool(tests) and all(test.passed for test in tests),
        extracted_code=attempt.code,
        full_code=attempt.program,
        test_code=attempt.test_code,
        tests=tests,
        extracted_type=attempt.found,
    )


async def run_to_its_end(
    sandbox: Sandbox, benchmark: Benchmark, attempt: Attempt, config: TestConfig
) -> TestResult:
    """Run a program that tests itself. It must reach its end, by `extra.append_flag` or its benchmark."""
    wanted = config.extra.get("append_flag", attempt.to_the_end)
    if not isinstance(wanted, bool):
        raise RequestError(f"extra.append_flag is true or false, found {wanted!r}")
    program, files, word = attempt.program, dict(attempt.files), ""
    if wanted:
        word = new_word()
        if attempt.language == "python":
            program, beside = python_to_its_end(program)
            files |= beside
        elif (with_word := with_end(program, attempt.language, word)) is not None:
            program = with_word
        else:
            word = ""
    response = await sandbox.run_code(
        RunCodeRequest.model_construct(  # a language that there is not is answered by the sandbox
            code=program,
            language=attempt.language,
            stdin=word if attempt.language == "python" else None,
            compile_timeout=config.compile_timeout or benchmark.compile_s,
            run_timeout=config.run_timeout or benchmark.run_s,
            files=files,
        )
    )
    return tested(response, word)


@dataclass(frozen=True, slots=True)
class _ByRule:
    """A benchmark's own comparison."""

    accepts_output: Accepts
    strict: bool

    async def accepts(self, case: Case, ran: RunResult) -> bool:
        if ran.stdout_bytes > len(ran.stdout):
            return False  # cut: what is missing cannot be compared
        return self.accepts_output(ran.stdout.decode("utf-8", "replace"), case.stdout, strict=self.strict)


async def _by_cases(
    sandbox: Sandbox, benchmark: Benchmark, attempt: Attempt, config: TestConfig
) -> list[TestResult]:
    limits = sandbox.limits(config.run_timeout or benchmark.run_s)
    program = Program(
        attempt.program,
        sandbox.toolchains.of(attempt.language),
        compile_limits=sandbox.limits(config.compile_timeout or benchmark.compile_s),
        run_limits=limits,
    )
    tests = await Judging(
        sandbox,
        program,
        attempt.cases,
        _checker(sandbox, attempt, config.extra),
        all_cases=bool(config.extra.get("run_all_cases")),
        whole_cases=bool(config.extra.get("return_full_case")),
    ).run()
    return tests if all(test.passed for test in tests) else [_summary(tests), *tests]


def _checker(sandbox: Sandbox, attempt: Attempt, extra: Mapping[str, Any]) -> Checker:
    if attempt.judge:
        return ByJudge(sandbox, attempt.judge, "python", any_other_end_is_wrong=True)
    strict = extra.get("strict", False)
    if not isinstance(strict, bool):
        raise RequestError(f"extra.strict is true or false, found {strict!r}")
    assert attempt.accepts is not None, "cases without a rule of comparison"
    return _ByRule(attempt.accepts, strict)


def _summary(tests: list[TestResult]) -> TestResult:
    """The first failure in the words of LiveCodeBench's own harness, which stand on standard output."""
    failed = next(test for test in tests if not test.passed)
    ran, case = failed.exec_info.run_result, failed.test_info or {}
    kind, code = ("Wrong Answer", -2) if ran is not None and ran.return_code == 0 else ("Runtime Error", -4)
    if ran is not None and ran.status == "TimeLimitExceeded":
        kind, code = "Time Limit Exceeded", -3
    told = {
        "error_code": code,
        "error_message": kind,
        "inputs": case.get("input", {}).get("stdin"),
        "expected": case.get("output", {}).get("stdout"),
        "output": ran.stdout if ran is not None else None,
    }
    words = orjson.dumps(told).decode()
    result = ran.model_copy(update={"stdout": words}) if ran is not None else None
    info = failed.exec_info.model_copy(update={"status": RunStatus.FAILED, "run_result": result})
    return TestResult(passed=False, exec_info=info, test_info=failed.test_info)
