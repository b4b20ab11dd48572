"""The critic's loss: value, gradient and metrics worked by hand."""

import math

import pytest
import torch

from strop.learners.losses import policy as loss
from strop.learners.losses.value import value_loss

OLD = torch.tensor([[0.5, 0.5], [0.5, 0.5]], dtype=torch.float64)
RETURNS = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
MASK = torch.tensor([[1, 1], [1, 0]])


def values() -> torch.Tensor:
    return torch.tensor([[0.0, 1.0], [0.9, 5.0]], dtype=torch.float64, requires_grad=True)


def worked(found: torch.Tensor, clip: float | None = 0.2, **changes):
    given = {"old_values_BT": OLD, "returns_BT": RETURNS, "mask_BT": MASK, **changes}
    return value_loss(values_BT=found, clip=clip, **given)


def test_the_larger_of_plain_and_clipped_error_counts():
    found = values()
    # Kept within 0.2 of the old values: 0.3, 0.7, 0.7. Errors 1, 0, 0.81 plain and 0.49, 0.09, 0.49 clipped.
    total, metrics = worked(found)
    assert total.item() == pytest.approx((1 + 0.09 + 0.81) / 3 / 2)
    assert metrics == pytest.approx({"critic/vf_clipfrac": 1 / 3, "critic/vpred_mean": 1.9 / 3})
    total.backward()
    expected = torch.tensor([[-1 / 3, 0.0], [0.3, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(found.grad, expected)


def test_without_clipping_it_is_half_the_mean_squared_error():
    found = values()
    total, metrics = worked(found, clip=None)
    assert total.item() == pytest.approx((1 + 0 + 0.81) / 3 / 2)
    assert metrics["critic/vf_clipfrac"] == 0
    total.backward()
    expected = torch.tensor([[-1 / 3, 0.0], [0.3, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(found.grad, expected)


def test_near_the_old_values_clipping_changes_neither_loss_nor_gradient():
    clipped, plain = values(), values()
    old = values().detach() + 0.1
    first, metrics = worked(clipped, old_values_BT=old)
    second, _ = worked(plain, clip=None)
    first.backward()
    second.backward()
    assert first.item() == pytest.approx(second.item())
    assert metrics["critic/vf_clipfrac"] == 0
    torch.testing.assert_close(clipped.grad, plain.grad)


@pytest.mark.parametrize("wild", [1e6, math.nan, math.inf])
def test_nothing_outside_the_mask_counts(wild: float):
    found = values()
    wild_BT = torch.tensor([[0.0, 0.0], [0.0, wild]], dtype=torch.float64)
    given = {"old_values_BT": OLD + wild_BT, "returns_BT": RETURNS + wild_BT}
    total, metrics = worked(found + wild_BT, **given)
    expected, expected_metrics = worked(values())
    total.backward()
    assert total.item() == expected.item()
    assert metrics == expected_metrics
    assert found.grad.isfinite().all()
    assert found.grad[1, 1] == 0


def test_parts_add_up_to_the_whole():
    whole, metrics = worked(values())
    parts = [
        value_loss(
            values_BT=values()[row : row + 1],
            old_values_BT=OLD[row : row + 1],
            returns_BT=RETURNS[row : row + 1],
            mask_BT=MASK[row : row + 1],
            clip=0.2,
            num_tokens=3,
        )
        for row in range(2)
    ]
    assert sum(part.item() for part, _ in parts) == pytest.approx(whole.item())
    for name, value in metrics.items():
        assert sum(part[name] for _, part in parts) == pytest.approx(value)


def test_a_fully_masked_micro_batch_is_harmless():
    found = values()
    total, metrics = worked(found, mask_BT=torch.zeros(2, 2), num_tokens=3)
    total.backward()
    assert total.item() == 0
    assert (found.grad == 0).all()
    assert metrics == {"critic/vf_clipfrac": 0, "critic/vpred_mean": 0}


@pytest.mark.parametrize("clip", [0.0, -0.2])
def test_a_clip_that_is_not_above_zero_is_refused(clip: float):
    with pytest.raises(ValueError, match="clip must be above 0"):
        worked(values(), clip=clip)


def test_it_stands_beside_the_other_losses():
    assert loss.value_loss is value_loss
