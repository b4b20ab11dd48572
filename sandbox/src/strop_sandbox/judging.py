"""A program and its cases -> the result of each: compiled once, cases side by side where there is room.

Cases are handed out in order; after the first that fails only those before it are finished, unless all are
wanted. How many run at once is decided by what is free, and the sandbox's turns keep it fair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass

from strop_sandbox.box import Box, RunResult
from strop_sandbox.cases import Cases
from strop_sandbox.checkers import Checker
from strop_sandbox.programs import Program, answer
from strop_sandbox.sandbox import Sandbox, until_kept
from strop_sandbox.wire import TestResult

MAX_LANES = 8
"""Boxes that one submission uses at most."""


@dataclass(slots=True)
class _Board:
    """Which case comes next, and what became of the others."""

    count: int
    all_cases: bool
    results: dict[int, TestResult]
    next_index: int = 0
    first_failed: int | None = None

    def take(self) -> int | None:
        if self.next_index >= self.count or (self.first_failed is not None and not self.all_cases):
            return None
        self.next_index += 1
        return self.next_index - 1

    def put(self, index: int, result: TestResult) -> None:
        self.results[index] = result
        if not result.passed and (self.first_failed is None or index < self.first_failed):
            self.first_failed = index

    def in_order(self) -> list[TestResult]:
        last = self.count if self.all_cases or self.first_failed is None else self.first_failed + 1
        return [self.results[index] for index in range(last) if index in self.results]


class Judging:
    """One submission under judgement."""

    def __init__(
        self,
        sandbox: Sandbox,
        program: Program,
        cases: Cases,
        checker: Checker,
        *,
        all_cases: bool = False,
        whole_cases: bool = False,
    ) -> None:
        self._sandbox, self._program, self._cases, self._checker = sandbox, program, cases, checker
        self._whole_cases = whole_cases
        self._all_cases = all_cases
        self._key: Hashable = self

    async def run(self) -> list[TestResult]:
        """The results in the order of the cases, up to the first that failed or of all.

        Raises:
            BoxError: the sandbox itself failed.
        """
        return await until_kept(self._run)

    async def _run(self) -> list[TestResult]:
        self._board = _Board(len(self._cases), self._all_cases, {})
        async with self._sandbox.slots.turn(self._key):
            async with self._sandbox.pool.box() as box:
                if not await self._program.prepare(box):
                    self._board.put(0, self._result(0, None, passed=False))
                    self._board.all_cases = False
                    return self._board.in_order()
                num_others = self._num_lanes() - 1
                if num_others:
                    await self._program.keep(box)
                async with asyncio.TaskGroup() as lanes:
                    for _ in range(num_others):
                        lanes.create_task(self._other_lane())
                    lanes.create_task(self._cases_in(box))
        return self._board.in_order()

    def _num_lanes(self) -> int:
        slots = self._sandbox.slots
        free = slots.num_slots - slots.num_running if not slots.num_waiting else 0
        return max(1, min(len(self._cases), free + 1, MAX_LANES))

    async def _other_lane(self) -> None:
        async with self._sandbox.box(self._key) as box:
            await self._program.put(box)
            await self._cases_in(box)

    async def _cases_in(self, box: Box) -> None:
        while (index := self._board.take()) is not None:
            case = self._cases[index]
            ran = await self._program.run(box, case.stdin)
            passed = ran.ok and await self._checker.accepts(case, ran)
            self._board.put(index, self._result(index, ran, passed=passed))
            if not box.is_alive:  # that case brought it down; the next ones get another
                async with self._sandbox.pool.box() as fresh:
                    if await self._program.prepare(fresh):
                        await self._cases_in(fresh)
                return

    def _result(self, index: int, ran: RunResult | None, *, passed: bool) -> TestResult:
        case = self._cases[index]
        return TestResult(
            passed=passed,
            exec_info=answer(self._program.compiled, ran),
            test_info=case.shown(whole=self._whole_cases or not passed),
        )
