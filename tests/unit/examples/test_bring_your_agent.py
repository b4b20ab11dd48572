"""Agents as people write them: what a scripted model gets wrong comes back as a tool's answer."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from strop import RolloutOutput
from strop.functions.testing import Said, ScriptedModel, ToolCall, calls, cut, run_rollout

FOLDER = Path(__file__).parents[3] / "examples" / "bring_your_agent"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bring_your_agent_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOOP = load("tool_loop").ToolLoop


def played(script: list[str | Said]) -> tuple[RolloutOutput, list[dict[str, Any]], ScriptedModel]:
    with ScriptedModel(script) as model:
        output = run_rollout(LOOP, "What is 2 + 2, times 3?", model=model)
    assert output.agent_output is not None
    return output, output.agent_output.messages or [], model


def test_tools_are_called_and_their_results_sent_back() -> None:
    script = [calls(("add", {"a": 2, "b": 2})), calls(("multiply", {"a": 4, "b": 3})), "It is 12."]
    output, messages, model = played(script)
    assert [message["content"] for message in messages if message["role"] == "tool"] == ["4", "12"]
    assert messages[-1]["content"] == "It is 12."
    assert [tool["function"]["name"] for tool in model.requests[0]["tools"]] == ["add", "multiply"]
    assert output.agent_output is not None
    assert output.agent_output.rollout_metrics == {"tool_errors": 0}


def test_two_calls_in_a_turn_get_an_answer_each() -> None:
    _, messages, model = played([calls(("add", {"a": 1, "b": 1}), ("add", {"a": 5, "b": 5})), "done"])
    answers = [(m["tool_call_id"], m["content"]) for m in messages if m["role"] == "tool"]
    assert answers == [("call_0_0", "2"), ("call_0_1", "10")]
    assert [m["role"] for m in model.requests[1]["messages"]] == ["user", "assistant", "tool", "tool"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (calls(("add", '{"a": 1,}')), "error: the arguments are no JSON"),
        (calls(("divide", {"a": 1, "b": 2})), "error: no tool 'divide'; there are add, multiply"),
        (calls(("add", {"x": 1})), "error: add() got an unexpected keyword argument 'x'"),
        (calls(("add", "[1, 2]")), "error: "),
        (calls(("multiply", {"a": "2", "b": 3})), "error: a: expected a number, found '2'"),
        (calls(("add", {"a": 1, "b": True})), "error: b: expected a number, found True"),
        (calls(("add", f'{{"a": {"9" * 5000}, "b": 1}}')), "error: Exceeds the limit"),
        (calls(("multiply", f'{{"a": {"9" * 400}, "b": 0.5}}')), "error: int too large to convert to float"),
        (calls(("add", "[" * 100_000)), "error: "),
        (cut("", ToolCall("add", '{"a": 1, "b"')), "error: the arguments are no JSON"),
    ],
)
def test_a_bad_call_is_a_tool_error_and_the_rollout_lives(said: Said, told: str) -> None:
    output, messages, _ = played([said, "I give up."])
    (answer,) = [message["content"] for message in messages if message["role"] == "tool"]
    assert answer.startswith(told)
    assert messages[-1]["content"] == "I give up."
    assert output.agent_output is not None
    assert output.agent_output.rollout_metrics == {"tool_errors": 1}


def test_an_answer_that_the_token_limit_cut_ends_the_rollout_with_what_there_is() -> None:
    _, messages, model = played([cut("The sum is")])
    assert messages[-1]["content"] == "The sum is"
    assert len(model.requests) == 1
