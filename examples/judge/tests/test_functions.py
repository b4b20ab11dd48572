"""The reward with a scripted judge."""

import json

import pytest
from functions.reward import Understandable

from strop import RewardOutput
from strop.functions.testing import ScriptedModel, refuses, run_reward

GOOD = "A magnet pulls iron to itself."


def graded(answer: str, script: list) -> tuple[RewardOutput, ScriptedModel]:
    with pytest.MonkeyPatch.context() as patch, ScriptedModel(script) as judge:
        patch.setenv("JUDGE_URL", judge.base_url)
        patch.setenv("JUDGE_MODEL", "judge")
        return run_reward(Understandable, answer, ground_truth="magnet"), judge


def test_what_passes_the_rules_is_graded() -> None:
    output, judge = graded(GOOD, [json.dumps({"reason": "simple", "grade": 4})])
    # 0.25 * 1 + 0.75 * (4 - 1) / 4
    assert output.reward.reward_score == pytest.approx(0.8125)
    assert "Would the reader understand it" in judge.requests[0]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("answer", "rule"),
    [("", "answered"), ("I'm sorry, I cannot do that.", "answered"), ("It pulls iron.", "names_it")],
)
def test_what_fails_a_rule_is_0_and_asks_nobody(answer: str, rule: str) -> None:
    output, judge = graded(answer, [])
    assert output.reward.reward_score == 0.0
    assert output.reward.reward_metrics == {"rule_pass": 0.0, f"{rule}.failed": 1.0}
    assert judge.requests == []


def test_a_judge_that_is_away_is_a_failed_call_and_no_0() -> None:
    output, _ = graded(GOOD, [refuses(400, "no such model")])
    assert (output.status, output.error_code) == ("failed", "cannot_score")
    assert "no such model" in (output.error or "")
