"""A preset by name -> the reward class that a worker hosts."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from typing import Any

from strop.functions.preset_catalogue import COMMON, all_presets
from strop.functions.presets.answer import CannotScore, Scored, answer_of
from strop.functions.processor import AbstractRewardProcessor
from strop.schema.function import Reward, RewardInput, RewardOutput, TaskStatus


class PresetReward(AbstractRewardProcessor):
    """One preset with its parameters, which were checked when the job was read."""

    def __new__(cls, preset: str, params: Mapping[str, Any]) -> PresetReward:
        """One that waits for others, as a judge does, is hosted as what it is: its calls can be canceled."""
        is_async = inspect.iscoroutinefunction(all_presets()[preset].score)
        chosen: type[PresetReward] = _AwaitedPreset if is_async else cls
        return object.__new__(chosen)

    def __init__(self, preset: str, params: Mapping[str, Any]) -> None:
        super().__init__()
        self._preset = all_presets()[preset]
        values = self._preset.values(self._preset.parameters.model_validate(dict(params)))
        self._params = {name: value for name, value in values.items() if name not in COMMON}
        self._reference: str | None = values.get("reference")
        self._after: str | None = values["after"]
        missing = presets_lack(preset)
        if missing is not None:
            raise ImportError(f"preset {preset!r} needs {missing}: pip install 'strop[rewards]'")

    def process(self, input: RewardInput) -> Awaitable[RewardOutput] | RewardOutput:
        try:
            return _scored(self._score(input))
        except CannotScore as error:
            return _failed(error)

    def _score(self, input: RewardInput) -> Any:
        answer = answer_of(input, after=self._after)
        given = [answer, self._reference_of(input)] if self._preset.compares else [answer]
        return self._preset.score(*given, **self._params)

    def _reference_of(self, input: RewardInput) -> object:
        if self._reference is None:
            return input.ground_truth
        return (input.agent_output.rollout_extra or {}).get(self._reference)


class _AwaitedPreset(PresetReward):
    async def process(self, input: RewardInput) -> RewardOutput:
        try:
            return _scored(await self._score(input))
        except CannotScore as error:
            return _failed(error)


def _scored(score: float) -> RewardOutput:
    metrics = dict(score.metrics) if isinstance(score, Scored) else None
    return RewardOutput(reward=Reward(reward_score=float(score), reward_metrics=metrics))


def _failed(error: CannotScore) -> RewardOutput:
    return RewardOutput(
        reward=Reward(reward_score=0.0),  # the wire wants one; nobody reads it beside FAILED
        status=TaskStatus.FAILED,
        error=str(error),
        error_code=error.error_code,
    )


def presets_lack(name: str) -> str | None:
    """The library that a preset compares with and that is not installed."""
    from importlib.util import find_spec

    needed: tuple[str, ...] = getattr(inspect.getmodule(all_presets()[name].score), "NEEDS", {}).get(name, ())
    return next((one for one in needed if find_spec(one) is None), None)
