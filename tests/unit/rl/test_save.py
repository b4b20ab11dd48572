"""Which checkpoints stay: by hand."""

import pytest

from strop.config.job import HyperParameters
from strop.rl.checkpoints import Kept, save_is_due, to_remove


def shelf(*validations: float | None) -> list[Kept]:
    return [
        Kept(step=step, name=f"step-{step}", validation=value, published=False)
        for step, value in enumerate(validations, start=1)
    ]


@pytest.mark.parametrize(
    ("validations", "limit", "removed"),
    [
        ((None, None, None), 2, [1]),
        ((0.1, 0.2, 0.3), 2, [1]),
        ((0.9, 0.2, 0.3), 2, [2]),
        ((0.9, 0.2, 0.3), 1, [2]),
        ((0.2, 0.9, 0.4, 0.5), 2, [1, 3]),
        ((0.5, 0.5, 0.1), 2, [1]),
        ((None, 0.0, None), 2, [1]),
        ((0.1, 0.2), 2, []),
        ((0.3,), 1, []),
    ],
)
def test_the_oldest_go_but_neither_the_best_nor_the_newest(validations, limit, removed):
    assert [one.step for one in to_remove(shelf(*validations), limit)] == removed


@pytest.mark.parametrize(
    ("strategy", "due"),
    [("steps", [3, 6]), ("epoch", [4]), ("no", [])],
)
def test_saving_is_due_by_steps_by_epoch_or_never(strategy, due):
    hyper = HyperParameters(save_strategy=strategy, save_steps=3)
    assert [step for step in range(1, 7) if save_is_due(hyper, step, epoch_ended=step == 4)] == due
