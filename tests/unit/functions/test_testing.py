"""The kit for tests without a model, with the real OpenAI client."""

from __future__ import annotations

import json
from pathlib import Path

import openai
import pytest
from openai import OpenAI

from strop import (
    AbstractGroupRewardProcessor,
    AbstractRewardProcessor,
    AbstractRolloutProcessor,
    AgentOutput,
    RewardInput,
    RolloutInput,
    RolloutOutput,
)
from strop.functions.testing import (
    Recording,
    ScriptedModel,
    calls,
    cut,
    refuses,
    run_group_reward,
    run_reward,
    run_rollout,
)

QUESTION = [{"role": "user", "content": "2 + 2?"}]


def client_of(model: ScriptedModel | Recording, retries: int = 0) -> OpenAI:
    return OpenAI(base_url=model.base_url, api_key="none", max_retries=retries)


def test_a_script_answers_in_order_and_then_refuses_for_good() -> None:
    with ScriptedModel(
        [calls(("add", {"a": 2, "b": 2}), ("add", '{"a": 1,}')), cut("ANS"), "ANSWER: 4"]
    ) as model:
        client = client_of(model)
        said = [client.chat.completions.create(model="m", messages=QUESTION).choices[0] for _ in range(3)]
        with pytest.raises(openai.BadRequestError, match="the script has 3 answers, and this is call 4"):
            client.chat.completions.create(model="m", messages=QUESTION)
    assert [one.finish_reason for one in said] == ["tool_calls", "length", "stop"]
    made = said[0].message.tool_calls or []
    assert [(one.function.name, one.function.arguments) for one in made] == [
        ("add", '{"a": 2, "b": 2}'),
        ("add", '{"a": 1,}'),
    ]
    assert [one.message.content for one in said[1:]] == ["ANS", "ANSWER: 4"]
    assert len(model.requests) == 4
    assert model.num_left == 0


def test_an_answer_streams_as_the_openai_client_reads_it() -> None:
    with ScriptedModel([calls(("add", {"a": 2}), text="let me see")]) as model:
        stream = client_of(model).chat.completions.create(model="m", messages=QUESTION, stream=True)
        choices = [chunk.choices[0] for chunk in stream if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "let me see"
    (call,) = [call for choice in choices for call in choice.delta.tool_calls or []]
    assert (call.function.name, call.function.arguments) == ("add", '{"a": 2}')
    assert choices[-1].finish_reason == "tool_calls"


def test_an_http_error_of_the_script_is_tried_again_by_the_client() -> None:
    with ScriptedModel([refuses(429, retry_after_s=0.01), refuses(503), "4"]) as model:
        answer = client_of(model, retries=3).chat.completions.create(model="m", messages=QUESTION)
    assert answer.choices[0].message.content == "4"
    assert len(model.requests) == 3


def test_a_recording_asks_once_and_plays_the_same_again(tmp_path: Path) -> None:
    file = tmp_path / "kept" / "answers.json"
    with ScriptedModel(["first", "second"]) as real:
        with Recording(file, upstream=real.base_url, api_key="secret-key") as recording:
            client = client_of(recording)
            recorded = [
                client.chat.completions.create(model="m", messages=QUESTION).choices[0].message.content
                for _ in range(2)
            ]
    assert recorded == ["first", "second"]
    assert "secret-key" not in file.read_text()
    with Recording(file) as played:
        client = client_of(played)
        again = [
            client.chat.completions.create(model="other", messages=QUESTION).choices[0].message.content
            for _ in range(2)
        ]
        with pytest.raises(openai.BadRequestError, match=r"answers\.json has no answer to '2 \+ 2\?'"):
            client.chat.completions.create(model="m", messages=QUESTION)
    assert again == recorded


class Asks(AbstractRolloutProcessor):
    def setup(self) -> None:
        self.prefix = "Q: "

    async def process(self, input: RolloutInput) -> RolloutOutput:
        resource = input.model_resource
        client = OpenAI(base_url=resource.base_url, api_key=resource.api_key.get_secret_value())
        answer = client.chat.completions.create(model=resource.model_name, messages=input.messages)
        messages = [*input.messages, {"role": "assistant", "content": answer.choices[0].message.content}]
        return RolloutOutput(agent_output=AgentOutput(messages=messages, rollout_extra=input.rollout_extra))


class Exact(AbstractRewardProcessor):
    def process(self, input: RewardInput) -> dict[str, object]:
        said = (input.agent_output.messages or [{}])[-1].get("content")
        return {"reward": {"reward_score": float(said == input.ground_truth)}}


class TooFew(AbstractGroupRewardProcessor):
    def process(self, input: object) -> dict[str, object]:
        return {"reward": {"rewards": [{"reward_score": 1.0}]}}


def test_a_row_runs_through_agent_and_reward() -> None:
    row = {"messages": QUESTION, "rollout_extra": {"ground_truth": "4", "kind": "sum"}}
    with ScriptedModel(["4"]) as model:
        output = run_rollout(Asks, row, model=model)
    assert output.agent_output is not None
    assert output.agent_output.rollout_extra == {"ground_truth": "4", "kind": "sum"}
    assert run_reward(Exact, output, ground_truth="4").reward.reward_score == 1.0
    assert run_reward(Exact, "5", ground_truth="4").reward.reward_score == 0.0


def test_a_group_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="1 rewards for 2 agent outputs"):
        run_group_reward(TooFew, ["a", "b"])


def test_a_recording_is_readable_json(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    with ScriptedModel(["好"]) as real, Recording(file, upstream=real.base_url) as recording:
        client_of(recording).chat.completions.create(model="m", messages=QUESTION)
    (kept,) = json.loads(file.read_text()).values()
    assert kept[0]["reply"]["choices"][0]["message"]["content"] == "好"
    assert "好" in file.read_text()
