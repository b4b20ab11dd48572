"""Agent, MCP server and reward without a model: a script says what the model would."""

from collections.abc import Iterator
from typing import Any

import pytest
from functions.reward.reward import CalcXRewardProcessor
from functions.rollout.rollout import MAX_TURNS, CalcXRolloutProcessor, start_calculator

from strop import AgentOutput, RolloutOutput
from strop.functions.testing import Said, ScriptedModel, ToolCall, calls, cut, run_reward, run_rollout

ROW = {"messages": [{"role": "user", "content": "What is 762 + 163?"}], "rollout_extra": {"solution": "925"}}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """One MCP server for all tests."""
    process, url = start_calculator()
    yield url
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(20) == 0


@pytest.fixture(autouse=True)
def _its_url(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALCULATOR_MCP_URL", server)


def played(script: list[str | Said]) -> tuple[RolloutOutput, list[dict[str, Any]], ScriptedModel]:
    """A rollout, the messages after the question, and the model."""
    with ScriptedModel(script) as model:
        output = run_rollout(CalcXRolloutProcessor, ROW, model=model)
    assert output.agent_output is not None
    messages = output.agent_output.messages or []
    return output, messages[messages.index(ROW["messages"][0]) + 1 :], model


def asked(expression: str) -> tuple[str, dict[str, str]]:
    return "calculate", {"expression": expression}


def test_the_calculator_is_called_over_mcp_and_its_result_used() -> None:
    output, messages, model = played([calls(asked("762 + 163")), "### ANSWER: 925 ###"])
    assert [tool["function"]["name"] for tool in model.requests[0]["tools"]] == ["calculate"]
    assert [message["role"] for message in messages] == ["assistant", "tool", "assistant"]
    assert messages[1]["content"] == "925"
    assert output.agent_output is not None
    assert output.agent_output.rollout_metrics == {"tool_calls": 1, "tool_errors": 0}
    scored = run_reward(CalcXRewardProcessor, output).reward
    assert (scored.reward_score, scored.reward_metrics) == (1.0, {"accuracy": 1.0, "format": 1.0})


def test_two_calls_in_a_turn_get_an_answer_each() -> None:
    _, messages, model = played([calls(asked("1 + 1"), asked("5 + 5")), "### ANSWER: 10 ###"])
    answers = {one["tool_call_id"]: one["content"] for one in messages if one["role"] == "tool"}
    assert answers == {"call_0_0": "2", "call_0_1": "10"}
    assert [one["role"] for one in model.requests[1]["messages"][-3:]] == ["assistant", "tool", "tool"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (calls(("calculate", '{"expression": "1 + 1",')), "error: the arguments are no JSON object"),
        (calls(("divide", {"a": 1})), "Error: divide is not a valid tool, try one of [calculate]."),
        (calls(("calculate", {"wrong": "1"})), "Error executing tool calculate"),
        (calls(asked("1 / 0")), "Error executing tool calculate: division by zero"),
        (cut("", ToolCall("calculate", '{"expression": "762 +')), "error: the arguments are no JSON object"),
    ],
    ids=["no JSON", "unknown tool", "wrong argument", "failing tool", "cut off"],
)
def test_a_bad_call_is_a_tool_error_and_the_rollout_lives(said: Said, told: str) -> None:
    output, messages, model = played([said, "### ANSWER: 1 ###"])
    (answer,) = [one["content"] for one in messages if one["role"] == "tool"]
    assert answer.startswith(told)
    assert model.requests[1]["messages"][-1]["role"] == "tool"
    assert output.agent_output is not None
    assert output.agent_output.rollout_metrics == {"tool_calls": 1, "tool_errors": 1}
    assert run_reward(CalcXRewardProcessor, output).reward.reward_score == 0.0


def test_a_good_and_a_bad_call_in_one_turn_are_both_answered() -> None:
    _, messages, _ = played([calls(asked("2 * 3"), ("calculate", "{")), "### ANSWER: 6 ###"])
    answers = {one["tool_call_id"]: one["content"] for one in messages if one["role"] == "tool"}
    assert answers == {"call_0_0": "6", "call_0_1": "error: the arguments are no JSON object"}


def test_an_answer_that_the_token_limit_cut_ends_the_rollout_with_what_there_is() -> None:
    output, messages, model = played([cut("### ANSWER: 9")])
    assert [one["content"] for one in messages] == ["### ANSWER: 9"]
    assert len(model.requests) == 1
    scored = run_reward(CalcXRewardProcessor, output).reward
    assert scored.reward_metrics == {"accuracy": 0.0, "format": 0.0}


def test_an_agent_that_only_calls_ends_after_its_turns() -> None:
    output, _, model = played([calls(asked("1 + 1"))] * (MAX_TURNS + 1))
    assert len(model.requests) == MAX_TURNS
    assert run_reward(CalcXRewardProcessor, output).reward.reward_score == 0.0


def test_an_answer_that_would_take_for_ever_to_compute_is_wrong_at_once() -> None:
    for answer in ("1e999999999", "1E999999999", "1/0"):
        scored = run_reward(
            CalcXRewardProcessor,
            AgentOutput(
                messages=[{"role": "assistant", "content": f"### ANSWER: {answer} ###"}],
                rollout_extra={"solution": "925"},
            ),
        )
        assert scored.reward.reward_metrics == {"accuracy": 0.0, "format": 1.0}
