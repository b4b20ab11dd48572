"""Ark's `reward_fn`: both shapes of messages, statuses, the envelope of its console."""

import sys

import pytest

from strop.errors import FunctionError
from strop.functions import load_processor
from strop.functions.ark import Context, input_of_body, is_ark_body
from strop.schema.function import GroupRewardInput, TaskStatus

REWARD = """
from rl_types import RewardFunctionResult, RewardStatus


def text_of(completion):
    by_name, by_place = completion["messages"]["content"], completion["messages"][-1]["content"]
    assert by_name == by_place == completion["messages"].get("content")
    return by_name


def reward_fn(context, sample, completions):
    assert context["modle_customization_job_id"] == context["model_customization_job_id"]
    answer = sample["extra"]["answer"]
    if answer == "raise":
        raise KeyError("url")
    if answer in ("failure", "retry", "discard"):
        return RewardFunctionResult([0], {"error": 1.0}, RewardStatus(answer), "sandbox is away")
    if answer == "few":
        return RewardFunctionResult([1.0], {}, "success")
    if answer == "status":
        return RewardFunctionResult([1.0], {}, "fine")
    if answer == "metric":
        return {"rewards": [1.0, 1.0], "metrics": {"cost": "2 s"}}
    rewards = [float(answer in text_of(one)) for one in completions]
    tokens = sum(one.get("usage", {}).get("completion_tokens", 0) for one in completions)
    return RewardFunctionResult(rewards, {"tokens": tokens}, RewardStatus.SUCCESS)


async def later(context, sample, completions):
    return reward_fn(context, sample, completions)


def unlike(context, samples):
    return None
"""

PROMPT = [{"role": "user", "content": "2 + 2?"}]


@pytest.fixture(autouse=True)
def forget(monkeypatch, tmp_path):
    """What a test imports below its own root is gone after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    (tmp_path / "ark_reward.py").write_text(REWARD)
    yield
    for name in ("ark_reward", "rl_types"):
        sys.modules.pop(name, None)


def asked(answer: str) -> GroupRewardInput:
    outputs = [{"messages": [*PROMPT, {"role": "assistant", "content": text}]} for text in ("it is 4", "5")]
    more = {
        "sample": {"messages": PROMPT, "tools": [], "extra": {"answer": answer}},
        "completions": [{"finish_reason": "stop", "usage": {"completion_tokens": count}} for count in (3, 1)],
        "context": {"phase": "train"},
    }
    ids = {"job_id": "j", "sample_id": "s", "rollout_id": "g", "attempt_id": "a1"}
    return GroupRewardInput.model_validate({"agent_outputs": outputs, "request_metadata": ids, **more})


def test_one_call_scores_the_whole_group_and_its_metrics_are_each_members(tmp_path):
    processor = load_processor("ark_reward.py:reward_fn", tmp_path)()
    assert processor.func_type == "group_reward"
    output = processor.process(asked("4"))
    assert [one.reward_score for one in output.reward.rewards] == [1.0, 0.0]
    assert [one.reward_metrics for one in output.reward.rewards] == [{"tokens": 4.0}, {"tokens": 4.0}]


async def test_an_async_function_is_awaited(tmp_path):
    output = await load_processor("ark_reward.py:later", tmp_path)().process(asked("4"))
    assert [one.reward_score for one in output.reward.rewards] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("status", "code"), [("failure", "ends_job"), ("retry", "retry"), ("discard", "discard")]
)
def test_statuses_say_what_becomes_of_the_group(tmp_path, status, code):
    output = load_processor("ark_reward.py:reward_fn", tmp_path)().process(asked(status))
    assert (output.status, output.error, output.error_code) == (TaskStatus.FAILED, "sandbox is away", code)


def test_an_exception_is_a_failure(tmp_path):
    processor = load_processor("ark_reward.py:reward_fn", tmp_path)()
    with pytest.raises(KeyError):
        processor.process(asked("raise"))
    assert processor.code_of_raise == "ends_job"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("few", "gave 1 rewards for 2 completions"),
        ("status", "the status 'fine'; expected one of success, failure, retry, discard"),
        ("metric", "the metric 'cost' = '2 s'; expected a finite number"),
    ],
)
def test_wrong_results_are_told_apart(tmp_path, answer, text):
    with pytest.raises(ValueError, match=text):
        load_processor("ark_reward.py:reward_fn", tmp_path)().process(asked(answer))


@pytest.mark.parametrize("as_list", [True, False])
def test_the_envelope_of_arks_console_is_answered_as_ark_answers(tmp_path, as_list):
    message = {"role": "assistant", "content": "4"}
    data = {
        "context": {"model_customization_job_id": "mcj", "is_mock": False},
        "sample": {"messages": PROMPT, "extra": {"answer": "4"}},
        "completions": [{"messages": [message] if as_list else message}],
    }
    body = {"data": data, "method": "POST", "path": "/", "headers": {}}
    assert is_ark_body(body)
    assert is_ark_body(data)
    processor = load_processor("ark_reward.py:reward_fn", tmp_path)()
    output = processor.process(GroupRewardInput.model_validate(input_of_body(body)))
    assert output.ark_reply == {"rewards": [1.0], "metrics": {"tokens": 0}, "status": "success"}


def test_an_envelope_that_lacks_something_is_told_what():
    with pytest.raises(ValueError, match="sample: expected an object"):
        input_of_body({"completions": []})
    with pytest.raises(ValueError, match=r"completions\[0\].messages"):
        input_of_body({"sample": {}, "completions": [{}]})
    assert not is_ark_body({"agent_outputs": []})


def test_both_spellings_of_the_jobs_id_are_read():
    assert Context({"modle_customization_job_id": "x"})["model_customization_job_id"] == "x"
    with pytest.raises(KeyError, match="phase"):
        Context()["phase"]


def test_another_function_is_no_reward(tmp_path):
    with pytest.raises(FunctionError, match=r"'unlike' in ark_reward\.py is a function, not a class"):
        load_processor("ark_reward.py:unlike", tmp_path)
