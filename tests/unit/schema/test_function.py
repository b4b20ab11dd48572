import math
from typing import Any

import pytest
from pydantic import ValidationError

from strop.schema.function import (
    AgentOutput,
    GroupRewardInput,
    ModelResource,
    Reward,
    RewardInput,
    RewardOutput,
    RolloutInput,
    RolloutOutput,
    TaskStatus,
)

RESOURCE = {"model_name": "m", "base_url": "http://127.0.0.1/v1", "api_key": "sk-secret"}


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, "0.7", True, None, [1.0]])
def test_a_reward_that_is_no_finite_number_is_refused(score: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        Reward(reward_score=score)
    assert caught.value.errors()[0]["loc"] == ("reward_score",)


@pytest.mark.parametrize("score", [0, 1, -2.5, 1e300])
def test_a_finite_reward_is_kept_as_it_is(score: float) -> None:
    assert Reward(reward_score=score).reward_score == score


def test_unknown_top_level_fields_of_inputs_become_attributes() -> None:
    given = RolloutInput.model_validate(
        {"messages": [], "model_resource": RESOURCE, "additional_field": "any"}
    )
    assert given.additional_field == "any"  # pyright: ignore[reportAttributeAccessIssue]
    assert given.model_dump()["additional_field"] == "any"
    group = GroupRewardInput.model_validate({"agent_outputs": [], "more": 1})
    assert group.more == 1  # pyright: ignore[reportAttributeAccessIssue]


def test_unknown_nested_fields_are_dropped() -> None:
    given = RewardInput.model_validate({"agent_output": {"messages": [], "latency": 3}})
    assert "latency" not in given.agent_output.model_dump()


def test_the_models_key_is_masked_when_dumped() -> None:
    resource = ModelResource.model_validate(RESOURCE)
    assert resource.model_dump(mode="json")["api_key"] == "**********"
    assert resource.api_key.get_secret_value() == "sk-secret"


def test_defaults_are_those_of_the_wire() -> None:
    assert AgentOutput().model_dump() == {
        "messages": None,
        "rollout_extra": None,
        "rollout_metrics": {},
        "reward_score": None,
    }
    assert RolloutOutput().model_dump() == {
        "agent_output": None,
        "status": TaskStatus.SUCCESS,
        "error": None,
        "error_code": None,
    }


def test_an_error_code_given_as_a_number_becomes_text_and_a_bool_is_refused() -> None:
    reward = Reward(reward_score=0)
    assert RewardOutput.model_validate({"reward": reward, "error_code": 429}).error_code == "429"
    with pytest.raises(ValidationError):
        RolloutOutput.model_validate({"error_code": True})


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 129])
def test_a_metrics_name_is_one_short_line(name: str) -> None:
    with pytest.raises(ValidationError):
        AgentOutput(rollout_metrics={name: 1.0})
    with pytest.raises(ValidationError):
        Reward(reward_score=1.0, reward_metrics={name: 1.0})


def test_an_error_code_is_kept_to_one_short_line() -> None:
    assert RolloutOutput(error_code="rate\nlimit " + "x" * 99).error_code == "rate limit " + "x" * 53
    assert RolloutOutput(error_code=" ").error_code is None


def test_a_metric_that_is_not_finite_is_refused_with_its_name() -> None:
    with pytest.raises(ValidationError) as caught:
        AgentOutput(rollout_metrics={"steps": math.nan})
    assert caught.value.errors()[0]["loc"] == ("rollout_metrics", "steps")
