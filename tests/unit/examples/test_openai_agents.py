"""The OpenAI Agents SDK: what a scripted model gets wrong comes back as a tool's answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strop import RolloutOutput
from strop.config.loading import load_job
from strop.functions import load_processor
from strop.functions.testing import Said, ScriptedModel, ToolCall, calls, cut, run_rollout
from strop.inference.chat.request import ChatRequest

FOLDER = Path(__file__).parents[3] / "examples" / "openai_agents"


@pytest.fixture(scope="module")
def agent() -> Iterator[Any]:
    """The class, loaded as a worker loads it; the import path is left as it was."""
    before = [*sys.path]
    yield load_processor("agent.py:AgentsSdk", FOLDER)
    sys.path[:] = before
    sys.modules.pop("agent", None)


def played(agent: Any, script: list[str | Said]) -> tuple[dict[str, float], ScriptedModel]:
    """The metrics of a rollout, and the model."""
    with ScriptedModel(script) as model:
        output: RolloutOutput = run_rollout(agent, "What is 2 + 2, times 3?", model=model)
    assert output.agent_output is not None
    return dict(output.agent_output.rollout_metrics or {}), model


def answers(model: ScriptedModel) -> list[str]:
    """What the tools have told, as the model sees it in the end."""
    return [one["content"] for one in model.requests[-1]["messages"] if one["role"] == "tool"]


def test_tools_are_called_and_their_results_sent_back(agent: Any) -> None:
    script = [calls(("add", {"a": 2, "b": 2})), calls(("multiply", {"a": 4, "b": 3})), "### ANSWER: 12 ###"]
    metrics, model = played(agent, script)
    assert answers(model) == ["4", "12"]
    assert metrics == {"tool_calls": 2, "tool_errors": 0}
    for request in model.requests:
        ChatRequest.model_validate(request)  # the gateway takes what this SDK sends


def test_two_calls_in_a_turn_get_an_answer_each(agent: Any) -> None:
    _, model = played(agent, [calls(("add", {"a": 1, "b": 1}), ("add", {"a": 5, "b": 5})), "done"])
    assert answers(model) == ["2", "10"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (calls(("add", '{"a": 1,}')), "error: Invalid JSON input for tool add"),
        (calls(("divide", {"a": 1, "b": 2})), "error: no tool 'divide'; there are add, multiply"),
        (calls(("add", {"x": 1})), "error: Invalid JSON input for tool add"),
        (cut("", ToolCall("add", '{"a": 1, "b"')), "error: Invalid JSON input for tool add"),
    ],
    ids=["no JSON", "unknown tool", "wrong arguments", "cut off"],
)
def test_a_bad_call_is_a_tool_error_and_the_rollout_lives(agent: Any, said: Said, told: str) -> None:
    metrics, model = played(agent, [said, "I give up."])
    (answer,) = answers(model)
    assert answer.startswith(told)
    assert metrics == {"tool_calls": 1, "tool_errors": 1}


def test_an_answer_that_the_token_limit_cut_ends_the_rollout_with_what_there_is(agent: Any) -> None:
    metrics, model = played(agent, [cut("The sum is")])
    assert len(model.requests) == 1
    assert metrics == {"tool_calls": 0, "tool_errors": 0}


def test_an_agent_that_only_calls_ends_after_its_turns(agent: Any) -> None:
    _, model = played(agent, [calls(("add", {"a": 1, "b": 1}))] * 9)
    assert len(model.requests) == 6


def test_its_job_is_one_that_strop_takes() -> None:
    assert [one.label for one in load_job(FOLDER / "job.yaml").functions] == ["agent", "right"]
