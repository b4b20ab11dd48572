"""The rows of examples/math, their answers, and its job file."""

import json
from pathlib import Path

from strop.config.loading import load_job
from strop.functions import presets

EXAMPLE = Path(__file__).parents[3] / "examples" / "math"


def test_every_row_has_an_answer_that_its_own_reward_accepts():
    rows = [json.loads(line) for line in (EXAMPLE / "data" / "validation.jsonl").read_text().splitlines()]
    assert len(rows) == 16
    for row in rows[:4]:
        answer = row["extra"]["answer"]
        assert presets.math_equal(f"It is $\\boxed{{{answer}}}$.", answer, limit_s=60) == 1.0
        assert presets.math_equal("It is $\\boxed{-1}$.", answer, limit_s=60) == 0.0


def test_the_job_is_one_that_strop_takes():
    config = load_job(EXAMPLE / "job.yaml")
    assert [one.label for one in config.functions] == ["right", "box", "brief"]
    assert (config.hyper_parameters.n_rollouts, config.hyper_parameters.max_steps) == (8, 12)
