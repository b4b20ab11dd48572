"""Pydantic's errors as sentences."""

import pytest
from pydantic import ValidationError

from strop import RewardInput, RewardOutput, RolloutInput
from strop.functions import validation_text

SECRET = "sk-very-secret"


def test_fields_are_named_and_no_input_value_is_shown() -> None:
    resource = {"model_name": "m", "api_key": [SECRET], "base_url": {"x": SECRET}}
    with pytest.raises(ValidationError) as caught:
        RolloutInput.model_validate({"messages": [], "model_resource": resource})
    text = validation_text(caught.value, show_values=False)
    assert text.startswith(
        "model_resource.base_url: Input should be a valid string; model_resource.api_key: "
    )
    assert SECRET not in text


def test_numbers_of_an_input_are_not_shown_either() -> None:
    with pytest.raises(ValidationError) as caught:
        RewardInput.model_validate({"agent_output": {"rollout_metrics": {"a": SECRET}}})
    text = validation_text(caught.value, show_values=False)
    assert text == "agent_output.rollout_metrics.a: expected a number"


def test_an_output_shows_what_was_found() -> None:
    with pytest.raises(ValidationError) as caught:
        RewardOutput.model_validate({"reward": {"reward_score": "0.7"}})
    assert validation_text(caught.value, show_values=True) == (
        "reward.reward_score: expected a number, found str '0.7'"
    )
