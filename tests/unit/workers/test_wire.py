"""Requests as sent, replies as read."""

import json
import math

import pytest

from strop import AgentOutput, GroupRewardInput, RewardInput, RolloutInput
from strop.workers.wire import Answer, error_reply, output_reply, request_body, says_stuck


def answer(status: int, body: object) -> Answer:
    return Answer(status=status, content=json.dumps(body).encode())


ROLLOUT = {
    "messages": [{"role": "user", "content": "hi"}],
    "model_resource": {"model_name": "m", "base_url": "http://x/v1", "api_key": "sk-in-clear"},
    "additional_field": "kept",
}
REWARD = RewardInput(agent_output=AgentOutput())


def group(count: int) -> GroupRewardInput:
    return GroupRewardInput(agent_outputs=[AgentOutput()] * count)


def test_a_request_carries_the_key_in_clear_and_unknown_fields() -> None:
    values = json.loads(request_body(RolloutInput.model_validate(ROLLOUT)))
    assert values["model_resource"]["api_key"] == "sk-in-clear"
    assert values["additional_field"] == "kept"
    assert values["func_type"] == "rollout"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_json_has_not_is_not_sent_as_something_else(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        request_body(RewardInput(agent_output=AgentOutput(), ground_truth={"x": value}))


def test_a_valid_output_is_the_reply() -> None:
    reply = output_reply("f", REWARD, b'{"reward": {"reward_score": 0.5}, "extra": 1}')
    assert reply.ok
    assert reply.output is not None
    assert reply.output.model_dump()["reward"]["reward_score"] == 0.5
    assert reply.output.model_extra == {"extra": 1}


def test_a_reported_failure_keeps_its_text_code_and_output() -> None:
    content = {"agent_output": None, "status": "failed", "error": "no model", "error_code": "E7"}
    reply = output_reply("f", RolloutInput.model_validate(ROLLOUT), json.dumps(content).encode())
    assert (reply.ok, reply.error, reply.error_code) == (False, "no model", "E7")
    assert reply.output is not None


def test_a_reported_failure_without_text_or_code_gets_both() -> None:
    content = {"reward": {"rewards": []}, "status": "failed"}
    reply = output_reply("f", group(0), json.dumps(content).encode())
    assert reply.error == "group_reward function 'f' returned status failed without an error text"
    assert reply.error_code == "failed"


def test_a_group_reward_answers_for_every_output() -> None:
    one = b'{"reward": {"rewards": [{"reward_score": 1}]}}'
    assert output_reply("f", group(1), one).ok
    reply = output_reply("f", group(3), one)
    assert reply.error_code == "invalid_output"
    assert reply.error == "group_reward function 'f' returned 1 rewards for 3 agent outputs"


def test_an_output_that_is_none_names_function_and_field() -> None:
    reply = output_reply("f", REWARD, b'{"reward": {"reward_score": true}}')
    assert reply.error_code == "invalid_output"
    assert reply.error == (
        "reward function 'f' returned no valid output: "
        "reward.reward_score: expected a number, found bool True"
    )


@pytest.mark.parametrize(
    ("status", "body", "code", "text"),
    [
        (500, {"message": "ValueError: x", "error_code": "exception"}, "exception", "ValueError: x"),
        (504, {"message": "late", "error_code": "timeout"}, "timeout", "late"),
        (422, {"detail": "bad field"}, "invalid_input", "function 'f' refused its input: bad field"),
        (413, {"detail": "too long"}, "invalid_input", "function 'f' refused its input: too long"),
        (401, {"detail": "no token"}, "unreachable", "function 'f' answered HTTP 401: no token"),
        (500, ["odd"], "unreachable", "function 'f' answered HTTP 500: Internal Server Error"),
    ],
)
def test_error_replies_are_read(status: int, body: object, code: str, text: str) -> None:
    reply = error_reply("f", answer(status, body))
    assert (reply.error_code, reply.error) == (code, text)


def test_only_a_timeout_says_stuck() -> None:
    assert says_stuck(answer(504, {"stuck": True}))
    assert not says_stuck(answer(504, {"stuck": False}))
    assert not says_stuck(answer(500, {"stuck": True}))
