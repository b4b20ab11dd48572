"""Rules first, a judge after: `rule_pass * (w_rule * rule + w_model * model)`; a failed rule costs no
call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from strop.functions.judge.judge import Judge, failed
from strop.functions.presets.answer import CannotScore
from strop.schema.function import Reward, RewardInput, RewardOutput, TaskStatus

Rule = Callable[[RewardInput], Any]
"""Gives a number or a `RewardOutput`; `def` or `async def`."""


class Hybrid:
    """`must` are rules that have to give 1 or more, by name; `rule` scores what passes; the judge grades it.

    With `process = Hybrid(...).process` a reward class needs nothing else.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        must: Mapping[str, Rule],
        rule: Rule | None = None,
        w_rule: float = 0.0,
        w_model: float = 1.0,
    ) -> None:
        for name, weight in (("w_rule", w_rule), ("w_model", w_model)):
            if not math.isfinite(weight) or weight < 0:
                raise ValueError(f"{name}: expected 0 or more, found {weight!r}")
        if (rule is None) == (w_rule > 0):
            raise ValueError("rule and w_rule go together: give both or neither")
        if w_model == 0:
            raise ValueError("w_model: 0 would pay the judge for nothing")
        self._judge, self._must, self._rule = judge, must, rule
        self._w_rule, self._w_model = w_rule, w_model

    async def process(self, input: RewardInput) -> RewardOutput:
        """Score one rollout. A rule or a judge without a score makes it FAILED."""
        try:
            for name, rule in self._must.items():
                if await _value(name, rule, input) < 1:
                    metrics = {"rule_pass": 0.0, f"{name}.failed": 1.0}
                    return RewardOutput(reward=Reward(reward_score=0.0, reward_metrics=metrics))
            by_rule = await _value("rule", self._rule, input) if self._rule is not None else 0.0
        except CannotScore as error:
            return failed(error)
        graded = await self._judge.reward(input)
        if graded.status is TaskStatus.FAILED:
            return graded
        by_model = graded.reward.reward_score
        metrics = {
            "rule_pass": 1.0,
            "rule": by_rule,
            "model": by_model,
            **(graded.reward.reward_metrics or {}),
        }
        score = self._w_rule * by_rule + self._w_model * by_model
        return RewardOutput(reward=Reward(reward_score=score, reward_metrics=metrics))


async def _value(name: str, rule: Rule, input: RewardInput) -> float:
    """
    Raises:
        CannotScore: the rule says FAILED.
    """
    given = rule(input)
    if inspect.isawaitable(given):
        given = await given
    if isinstance(given, RewardOutput):
        if given.status is TaskStatus.FAILED:
            raise CannotScore(f"rule {name!r}: {given.error or 'failed'}")
        return given.reward.reward_score
    return float(given)
