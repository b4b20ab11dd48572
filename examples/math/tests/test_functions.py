"""The rewards without a model: Ark's test body, and answers written by hand."""

import json
from pathlib import Path

from strop.functions import load_processor, presets
from strop.functions.testing import run_ark

FOLDER = Path(__file__).parents[1]
REWARD_FN = load_processor("reward.py:reward_fn", FOLDER)


def test_the_body_of_arks_test_page_is_answered_as_ark_answers() -> None:
    reply = run_ark(REWARD_FN, json.loads((FOLDER / "request.json").read_text()))
    assert reply == {"rewards": [1.0, 0.0], "metrics": {"cut": 0.5}, "status": "success"}


def test_an_open_or_empty_box_is_none() -> None:
    texts = ["\\boxed{}", "\\boxed{4", "\\boxed{x}", "4"]
    completions = [{"messages": {"content": text}, "finish_reason": "stop"} for text in texts]
    reply = run_ark(REWARD_FN, {"context": {}, "sample": {}, "completions": completions})
    assert reply["rewards"] == [0.0, 0.0, 1.0, 0.0]


def test_equal_values_are_right_however_they_are_written() -> None:
    assert presets.math_equal("It is $\\boxed{\\frac{3}{6}}$.", "0.5", limit_s=60) == 1.0
    assert presets.math_equal("It is $\\boxed{0.6}$.", "0.5", limit_s=60) == 0.0
