"""Rewards that are not classes: every way to write a function, awaited where it needs to be."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from strop.functions import load_processor
from strop.schema.function import GroupRewardInput, RewardInput

FORMS = """
import functools

def plain(input):
    return 1.0

async def awaited(input):
    return 1.0

def returns_a_coroutine(input):
    return awaited(input)

def scaled(scale, input):
    return scale

async def scaled_later(scale, input):
    return scale

partial = functools.partial(scaled, 1.0)
partial_of_async = functools.partial(scaled_later, 1.0)

class Called:
    def __call__(self, input):
        return 1.0

class CalledLater:
    async def __call__(self, input):
        return 1.0

called, called_later = Called(), CalledLater()

def ark(context, sample, completions):
    return {"rewards": [1.0 for _ in completions], "metrics": {}, "status": "success"}

async def ark_awaited(context, sample, completions):
    return ark(context, sample, completions)

def ark_returns_a_coroutine(context, sample, completions):
    return ark_awaited(context, sample, completions)

class Ark:
    async def __call__(self, context, sample, completions):
        return ark(context, sample, completions)

ark_object = Ark()
ark_partial = functools.partial(ark_awaited)
"""


async def output_of(name: str, input: object, folder: Path) -> object:
    (folder / "forms_of_rewards.py").write_text(FORMS)
    given = load_processor(f"forms_of_rewards.py:{name}", folder)().process(input)
    return await given if inspect.isawaitable(given) else given


@pytest.mark.parametrize(
    "name",
    ["plain", "awaited", "returns_a_coroutine", "partial", "partial_of_async", "called", "called_later"],
)
async def test_every_form_of_a_reward_function_gives_its_number(name: str, tmp_path: Path) -> None:
    rollout = RewardInput.model_validate({"agent_output": {"messages": []}})
    assert await output_of(name, rollout, tmp_path) == {"reward": {"reward_score": 1.0}}


@pytest.mark.parametrize(
    "name", ["ark", "ark_awaited", "ark_returns_a_coroutine", "ark_object", "ark_partial"]
)
async def test_every_form_of_arks_function_scores_its_group(name: str, tmp_path: Path) -> None:
    group = GroupRewardInput.model_validate({"agent_outputs": [{"messages": []}, {"messages": []}]})
    output = await output_of(name, group, tmp_path)
    assert [one.reward_score for one in output.reward.rewards] == [1.0, 1.0]  # pyright: ignore[reportAttributeAccessIssue]
