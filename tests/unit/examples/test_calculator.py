"""The parts of the calculator example, without a model."""

import json
import re
from pathlib import Path

import make_data
import pytest
from functions.calculator import calculate, find_call
from functions.reward import Brief, Correct

from strop import AgentOutput, GroupRewardInput, RewardInput

DATA = Path(make_data.__file__).parent / "data"


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def said(*texts: str) -> AgentOutput:
    return AgentOutput(messages=[{"role": "assistant", "content": text} for text in texts])


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("762 + 163", "925"),
        ("28 * 24", "672"),
        ("28 × 24", "672"),
        ("1,200 - 1", "1199"),
        ("7 / 2", "3.5"),
        ("-3 + 5", "2"),
        ("1 / 0", "error: division by zero"),
        ("2 ** 99", "error: only numbers and + - * / are allowed"),
        ("__import__('os')", "error: only numbers and + - * / are allowed"),
        ("1 +", "error: only numbers and + - * / are allowed"),
        ("9" * 101, "error: the expression is too long"),
        ("1e308 * 1e308", "error: only numbers and + - * / are allowed"),
    ],
)
def test_the_calculator_computes_or_says_why_not(expression: str, result: str) -> None:
    assert calculate(expression) == result


def test_the_first_call_of_a_text_is_found() -> None:
    assert find_call("well <calc> 1 + 2 </calc> <calc>3</calc>") == "1 + 2"
    assert find_call("<calc>1 + 2") is None


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("ANSWER: 925", 1.0),
        ("so ANSWER: 925.", 1.0),
        ("ANSWER: 925.0", 1.0),
        ("ANSWER: 1,925", 0.0),
        ("ANSWER: 924", 0.0),
        ("ANSWER: 925 or 926", 0.0),
        ("925", 0.0),
        ("", 0.0),
    ],
)
def test_an_answer_is_right_when_it_stands_last_in_the_agreed_form(text: str, score: float) -> None:
    given = RewardInput(agent_output=said("<calc>762 + 163</calc>", text), ground_truth="925")
    assert Correct().process(given).reward.reward_score == score


def test_a_trajectory_that_ends_with_the_tools_words_is_not_an_answer() -> None:
    output = AgentOutput(messages=[{"role": "user", "content": "ANSWER: 925"}])
    assert Correct().process(RewardInput(agent_output=output, ground_truth="925")).reward.reward_score == 0.0


def test_brevity_is_paid_to_right_answers_up_to_half_as_long_again_as_the_shortest() -> None:
    texts = ["ANSWER: 5", "so, ANSWER: 5", "so now ANSWER: 5", "5", "ANSWER: 6"]  # 9, 13 and 16 characters
    group = GroupRewardInput(agent_outputs=[said(text) for text in texts], ground_truth="5")
    scores = [reward.reward_score for reward in Brief().process(group).reward.rewards]
    assert scores == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_the_data_is_what_its_generator_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(make_data, "HERE", tmp_path)
    make_data.main()
    for name in ("train.jsonl", "validation.jsonl"):
        assert (tmp_path / "data" / name).read_text() == (DATA / name).read_text()


def test_every_stated_answer_follows_from_the_numbers_of_its_question() -> None:
    for row in rows("train.jsonl") + rows("validation.jsonl"):
        a, b = map(int, re.findall(r"\d+", row["messages"][0]["content"])[:2])
        assert int(row["rollout_extra"]["ground_truth"]) in {a + b, abs(a - b), a * b}


def test_training_and_validation_share_no_numbers_and_no_wordings() -> None:
    def operands(row: dict) -> frozenset[str]:
        return frozenset(re.findall(r"\d+", row["messages"][0]["content"]))

    def words(row: dict) -> str:
        return re.sub(r"\d+", "N", row["messages"][0]["content"])

    train, held_out = rows("train.jsonl"), rows("validation.jsonl")
    assert (len(train), len(held_out)) == (512, 64)
    assert sum(row["rollout_extra"]["kind"] == "arithmetic" for row in train) == 256
    assert {row["rollout_extra"]["kind"] for row in held_out} == {"word"}
    assert not {operands(row) for row in train} & {operands(row) for row in held_out}
    assert not {words(row) for row in train} & {words(row) for row in held_out}
