"""The agent and its rewards without a model: a script says what the model would."""

from functions.agent import CalculatorAgent
from functions.reward import Brief, Correct

from strop.functions.testing import ScriptedModel, run_group_reward, run_reward, run_rollout

ROW = {
    "messages": [{"role": "user", "content": "What is 762 + 163?"}],
    "rollout_extra": {"ground_truth": "925"},
}


def test_the_agent_is_given_the_result_and_answers() -> None:
    with ScriptedModel(["<calc>762 + 163</calc>", "ANSWER: 925"]) as model:
        output = run_rollout(CalculatorAgent, ROW, model=model)
    assert model.requests[1]["messages"][-1] == {"role": "user", "content": "925"}
    assert output.agent_output is not None
    assert output.agent_output.rollout_metrics == {"calculator_calls": 1}
    assert run_reward(Correct, output, ground_truth="925").reward.reward_score == 1.0


def test_a_broken_call_is_an_error_that_the_model_reads() -> None:
    with ScriptedModel(["<calc>762 plus</calc>", "ANSWER: 1"]) as model:
        output = run_rollout(CalculatorAgent, ROW, model=model)
    assert model.requests[1]["messages"][-1]["content"].startswith("error: ")
    assert run_reward(Correct, output, ground_truth="925").reward.reward_score == 0.0


def test_of_two_right_answers_the_brief_one_is_paid() -> None:
    scored = run_group_reward(
        Brief, ["ANSWER: 925", "Well, I would say that it is ANSWER: 925", "1"], ground_truth="925"
    )
    assert [one.reward_score for one in scored.reward.rewards] == [1.0, 0.0, 0.0]
