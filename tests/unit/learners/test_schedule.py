"""The learning rate of each step, by formula."""

import math

import pytest

from strop.config.job import HyperParameters
from strop.rl.schedule import learning_rate


def rates(kind: str, warmup: int, total: int) -> list[float]:
    settings = HyperParameters.model_validate(
        {"learning_rate": 1.0, "lr_scheduler_type": kind, "lr_warmup_steps": warmup}
    )
    return [learning_rate(step, settings, total_steps=total) for step in range(total)]


def test_constant_stays_after_its_warm_up():
    assert rates("constant", 2, 5) == [0.5, 1.0, 1.0, 1.0, 1.0]


def test_linear_falls_evenly_and_wastes_no_step_at_zero():
    assert rates("linear", 0, 4) == [1.0, 0.75, 0.5, 0.25]


def test_cosine_follows_half_a_wave():
    assert rates("cosine", 0, 4) == pytest.approx(
        [0.5 + 0.5 * math.cos(math.pi * step / 4) for step in range(4)]
    )


def test_minus_one_warms_up_for_three_percent_of_the_run():
    assert rates("constant", -1, 100)[:4] == pytest.approx([1 / 3, 2 / 3, 1.0, 1.0])
    assert rates("constant", -1, 10)[0] == 1.0


def test_a_warm_up_as_long_as_the_run_only_rises():
    assert rates("cosine", 4, 4) == [0.25, 0.5, 0.75, 1.0]
