"""A completion and a problem -> accepted or not, by the class of the problem's data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from strop_sandbox.benchmarks import BENCHMARKS
from strop_sandbox.benchmarks.benchmark import Problem
from strop_sandbox.benchmarks.verdict import judged
from strop_sandbox.cases import Cases, parse_cases, parse_json, refuse_no_cases
from strop_sandbox.checkers import make_checker
from strop_sandbox.datasets import AUTO_EVAL, COMMON_OJ, Datasets, labels_of
from strop_sandbox.endings import new_word, python_to_its_end, tested
from strop_sandbox.errors import RequestError
from strop_sandbox.extraction import (
    EXTRACTION_PROGRAM,
    CodeBlock,
    ExtractedType,
    blocks_of,
    canonical,
    extract,
    without_entry,
)
from strop_sandbox.jest import REPORT, cases_of
from strop_sandbox.judging import Judging
from strop_sandbox.programs import Program, decoded_files
from strop_sandbox.sandbox import Sandbox
from strop_sandbox.test_files import Entry, TestFiles
from strop_sandbox.wire import (
    EvalResult,
    RunCodeRequest,
    RunCodeResponse,
    RunStatus,
    SubmitRequest,
    TestConfig,
)

_EXTRACTION_S = 10.0
_SLOW_START = ("cpp", "go", "java")
"""Their programs have 10 seconds where nothing is said; those of other languages 20, as in the reference."""

_AUTO_COMPILE_S, _AUTO_RUN_S = 40.0, 20.0
_INSERT = "#<INSERT>"


class Submissions:
    """Judges completions by the class of their problem."""

    def __init__(self, sandbox: Sandbox, datasets: Datasets, test_files: TestFiles) -> None:
        self._sandbox, self._datasets, self._test_files = sandbox, datasets, test_files

    async def submit(self, request: SubmitRequest) -> EvalResult:
        """Raises:
        RequestError: there is no such problem, or the request makes no sense as it stands.
        BoxError: the sandbox itself failed.
        """
        kind, row = self._datasets.problem(request.dataset, request.id, request.config)
        if kind in BENCHMARKS:
            problem = Problem(row, request.dataset)
            result = await judged(self._sandbox, BENCHMARKS[kind], problem, request)
        else:
            judge = self._common_oj if kind == COMMON_OJ else self._auto_eval
            result = await judge(request, row)
        self._sandbox.metrics.submitted(request.config.language or "", result.accepted)
        return result

    async def _common_oj(self, request: SubmitRequest, row: Mapping[str, Any]) -> EvalResult:
        config = request.config
        if not config.language:
            raise RequestError(f"config.language is needed for {COMMON_OJ}")
        toolchain = self._sandbox.toolchains.of(canonical(config.language))
        code, extracted = await self._extract(request.completion, config)
        checker = make_checker(self._sandbox, config.extra)
        program = Program(
            code,
            toolchain,
            compile_limits=self._sandbox.limits(config.compile_timeout or 10.0),
            run_limits=self._sandbox.limits(
                config.run_timeout or (10.0 if toolchain.language.name in _SLOW_START else 20.0)
            ),
        )
        async with self._cases(row) as cases:
            refuse_no_cases(len(cases))
            tests = await Judging(
                self._sandbox,
                program,
                cases,
                checker,
                all_cases=bool(config.extra.get("run_all_cases")),
                whole_cases=bool(config.extra.get("return_full_case")),
            ).run()
        return EvalResult(
            id=request.id,
            accepted=all(test.passed for test in tests),
            extracted_code=code,
            tests=tests,
            extracted_type=extracted,
        )

    def _cases(self, row: Mapping[str, Any]) -> _Held:
        return _Held(self._test_files, parse_json(row.get("test"), "test"))

    async def _extract(self, completion: str, config: TestConfig) -> tuple[str, ExtractedType | None]:
        blocks: list[CodeBlock] = []
        if config.custom_extract_logic:
            blocks = await self._custom_blocks(completion, config.custom_extract_logic)
        return extract(completion, config.language or "python", blocks)

    async def _custom_blocks(self, completion: str, logic: str) -> list[CodeBlock]:
        response = await self._sandbox.run_code(
            RunCodeRequest(
                code=EXTRACTION_PROGRAM,
                language="python",
                run_timeout=_EXTRACTION_S,
                stdin=orjson.dumps({"completion": completion, "logic": logic}).decode(),
                fetch_files=["blocks.json"],
            )
        )
        if response.status is not RunStatus.SUCCESS or "blocks.json" not in response.files:
            ran = response.run_result
            told = (ran.stderr if ran is not None else response.message) or "it did not end well"
            raise RequestError(f"config.custom_extract_logic failed: {told.strip().splitlines()[-1]}")
        try:
            return blocks_of(orjson.loads(decoded_files(dict(response.files))["blocks.json"]))
        except ValueError as error:
            raise RequestError(
                "config.custom_extract_logic failed: blocks.json is not a list of code blocks"
            ) from error

    async def _auto_eval(self, request: SubmitRequest, row: Mapping[str, Any]) -> EvalResult:
        config, labels = request.config, labels_of(row)
        test = parse_json(row.get("test"), "test")
        if not isinstance(test, Mapping) or not isinstance(test.get("code"), str):  # pyright: ignore[reportUnknownMemberType]
            raise RequestError(f"a test of {AUTO_EVAL} must be an object with code")
        language = labels.get("execution_language") or labels.get("programming_language") or config.language
        if not isinstance(language, str):
            raise RequestError("labels.programming_language is needed")
        written_in = str(labels.get("programming_language") or language)
        told = config.model_copy(update={"language": written_in})
        code, extracted = await self._extract(request.completion, told)
        code = without_entry(code, canonical(written_in))
        test = cast("Mapping[str, Any]", test)
        test_code: str = test["code"]
        full = test_code.replace(_INSERT, code) if _INSERT in test_code else f"{code}\n{test_code}"
        asset = parse_json(test.get("asset") or {}, "test.asset")
        flag, program = "", full
        if config.extra.get("append_flag"):
            if canonical(language) != "python":
                raise RequestError("extra.append_flag is for Python programs")
            flag = new_word()
            program, beside = python_to_its_end(full)
            asset = {**_files(asset), **beside}
        response = await self._sandbox.run_code(
            RunCodeRequest(
                code=program,
                stdin=flag,
                language=language,
                compile_timeout=config.compile_timeout or _AUTO_COMPILE_S,
                run_timeout=config.run_timeout or _AUTO_RUN_S,
                files=asset,  # pyright: ignore[reportArgumentType]
                fetch_files=[REPORT] if canonical(language) == "jest" else [],
            )
        )
        result = tested(response, flag)
        return EvalResult(
            id=request.id,
            accepted=result.passed,
            extracted_code=code,
            full_code=full,
            test_code=test_code,
            tests=[result],
            extracted_type=extracted,
            extra=_extra(response),
        )


def _files(asset: object) -> Mapping[str, Any]:
    if not isinstance(asset, Mapping):
        raise RequestError("test.asset is an object of files")
    return asset  # pyright: ignore[reportUnknownVariableType]


def _extra(response: RunCodeResponse) -> dict[str, Any] | None:
    """The cases of a runner that told them."""
    report = decoded_files(dict(response.files)).get(REPORT)
    cases = cases_of(report) if report is not None else None
    return None if cases is None else {"jest_cases": cases}


class _Held:
    """Cases for as long as they are needed: those in the request, or a file that must not be cleared away."""

    def __init__(self, files: TestFiles, test: object) -> None:
        self._files, self._test = files, test
        self._taken: Entry | None = None

    async def __aenter__(self) -> Cases:
        given = self._test
        if not isinstance(given, Mapping):
            return parse_cases(given)
        test = cast("Mapping[str, Any]", given)
        if test.get("location") != "URL":
            return parse_cases(test)
        url = test.get("url")
        if not isinstance(url, str):
            raise RequestError("test.url is needed with location URL")
        self._taken = await self._files.take(url)
        return self._taken.cases

    async def __aexit__(self, *_: object) -> None:
        if self._taken is not None:
            self._files.release(self._taken)
