"""What a program said to a case -> right or wrong: by comparison, or by a judge's program of its own.

A judge is called as testlib's are, `judge INPUT OUTPUT ANSWER`, and says by its exit status: 0 right, 1 or 2
(or 7, points) wrong, 3 that it cannot tell. It runs in a box, too; anything else it does is the test's fault
and no verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from strop_sandbox.box import Box, RunResult
from strop_sandbox.cases import Case
from strop_sandbox.comparison import Comparison
from strop_sandbox.errors import RequestError
from strop_sandbox.programs import Program
from strop_sandbox.sandbox import Sandbox

_RIGHT, _WRONG, _UNABLE = (0,), (1, 2, 7), 3
_JUDGE_S = 20.0
_FILES = ("case.in", "case.out", "case.ans")


class Checker(Protocol):
    """Decides on the output of a run that ended well."""

    async def accepts(self, case: Case, ran: RunResult) -> bool: ...


class ByComparison:
    """The expected output is the only right one."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    async def accepts(self, case: Case, ran: RunResult) -> bool:
        if ran.stdout_bytes > len(ran.stdout):
            return False  # cut: what is missing cannot be compared
        return self._comparison.agree(ran.stdout.decode("utf-8", "replace"), case.stdout)


class ByJudge:
    """A program decides: compiled once, and each output is put before it in a box of its own."""

    def __init__(
        self, sandbox: Sandbox, code: str, language: str, *, any_other_end_is_wrong: bool = False
    ) -> None:
        self._sandbox, self._any_other_end_is_wrong = sandbox, any_other_end_is_wrong
        limits = sandbox.limits(_JUDGE_S)
        self._judge = Program(
            code,
            sandbox.toolchains.of(language),
            compile_limits=limits,
            run_limits=limits,
            arguments=_FILES,
        )
        self._compiling = asyncio.Lock()
        self._is_kept = False

    async def accepts(self, case: Case, ran: RunResult) -> bool:
        contents = (case.stdin.encode(), ran.stdout, case.stdout.encode())
        async with self._sandbox.pool.box() as box:
            await self._put(box)
            await box.write(dict(zip(_FILES, contents, strict=True)))
            said = await self._judge.run(box, None)
        expected = said.return_code in _RIGHT + _WRONG or self._any_other_end_is_wrong
        if not expected or said.return_code == _UNABLE:
            raise RequestError(
                f"extra.checker failed: {_words(said)}", fix="a judge ends with 0 (right), 1 or 2 (wrong)"
            )
        return said.ok and said.return_code in _RIGHT

    async def _put(self, box: Box) -> None:
        async with self._compiling:
            if not self._is_kept:
                if not await self._judge.prepare(box):
                    assert self._judge.compiled is not None
                    raise RequestError(f"extra.checker does not compile: {_words(self._judge.compiled)}")
                await self._judge.keep(box)
                self._is_kept = True
                return
        await self._judge.put(box)


def _words(said: RunResult) -> str:
    lines = (said.stderr or said.stdout).decode(errors="replace").strip().splitlines()
    return f"status {said.return_code}, {said.reason or 'ended'}: {lines[-1] if lines else 'no output'}"


def make_checker(sandbox: Sandbox, extra: Mapping[str, Any]) -> Checker:
    """By `extra.checker` {code, language}, else by comparison with `extra.strict` or `extra.float_tolerance`.

    Raises:
        RequestError: a value that cannot be meant.
    """
    strict, tolerance = extra.get("strict", False), extra.get("float_tolerance")
    judge = extra.get("checker")
    if judge is not None:
        if not isinstance(judge, Mapping) or not isinstance(judge.get("code"), str):  # pyright: ignore[reportUnknownMemberType]
            raise RequestError("extra.checker must be an object with code and language")
        if strict or tolerance is not None:
            raise RequestError("extra.checker decides alone: leave out strict and float_tolerance")
        return ByJudge(sandbox, judge["code"], str(judge.get("language", "python")))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    if not isinstance(strict, bool):
        raise RequestError(f"extra.strict is true or false, found {strict!r}")
    if strict and tolerance is not None:
        raise RequestError("extra.strict compares letters; leave out float_tolerance")
    if tolerance is None:
        return ByComparison(Comparison(strict=strict))
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 < tolerance < 1:
        raise RequestError(f"extra.float_tolerance is a number between 0 and 1, found {tolerance!r}")
    return ByComparison(Comparison(tolerance=float(tolerance)))
