"""The DPO family against values and gradients worked by hand."""

import pytest
import torch

from strop.learners.losses.policy import dpo_loss

# (0.5 nat up) - (1 nat down): h = 1.5; with beta = 0.1 the sigmoid's argument is 0.15.
# s(-0.15) = 0.4625701547, s(0.15) = 0.5374298453, -ln s(0.15) = 0.620957048, -ln s(-0.15) = 0.770957048.
CHOSEN, REFERENCE_CHOSEN = -3.0, -3.5
REJECTED, REFERENCE_REJECTED = -4.0, -3.0


def pairs(*rows: tuple[float, float, float, float]) -> dict[str, torch.Tensor]:
    columns = torch.tensor(rows, dtype=torch.float64).t().unbind() if rows else [torch.empty(0)] * 4
    names = ("policy_chosen", "policy_rejected", "reference_chosen", "reference_rejected")
    return {
        f"{name}_logprobs_P": column.clone().requires_grad_(name.startswith("policy"))
        for name, column in zip(names, columns, strict=True)
    }


ONE = (CHOSEN, REJECTED, REFERENCE_CHOSEN, REFERENCE_REJECTED)


@pytest.mark.parametrize(
    ("kind", "smoothing", "value", "slope"),
    [
        ("sigmoid", 0.0, 0.620957048, -0.0462570155),  # slope: -0.1 s(-0.15)
        ("sigmoid", 0.1, 0.635957048, -0.0362570155),  # 0.9 and 0.1 of both; -0.1 (0.9 s(-) - 0.1 s(+))
        ("robust", 0.1, 0.602207048, -0.0587570155),  # (0.9 * 0.620957 - 0.1 * 0.770957) / 0.8
        ("ipo", 0.0, 12.25, -7.0),  # (1.5 - 5)^2 and 2 (1.5 - 5)
    ],
)
def test_value_and_gradient_are_those_of_the_formula(
    kind: str, smoothing: float, value: float, slope: float
) -> None:
    given = pairs(ONE)
    loss, metrics = dpo_loss(kind, **given, beta=0.1, label_smoothing=smoothing)
    loss.backward()
    assert loss.item() == pytest.approx(value, abs=1e-8)
    assert given["policy_chosen_logprobs_P"].grad.item() == pytest.approx(slope, abs=1e-8)
    assert given["policy_rejected_logprobs_P"].grad.item() == pytest.approx(-slope, abs=1e-8)
    assert metrics["dpo/loss"] == pytest.approx(value, abs=1e-8)


def test_implicit_rewards_are_beta_times_the_drift_from_the_reference() -> None:
    # The second pair is wrong: its rejected answer rose by 2, its chosen one by 1.
    _, metrics = dpo_loss(**pairs(ONE, (-1.0, -1.0, -2.0, -3.0)), beta=0.5)
    assert metrics["dpo/rewards/chosen"] == pytest.approx(0.5 * (0.5 + 1.0) / 2)
    assert metrics["dpo/rewards/rejected"] == pytest.approx(0.5 * (-1.0 + 2.0) / 2)
    assert metrics["dpo/rewards/margin"] == pytest.approx(0.5 * (1.5 - 1.0) / 2)
    assert metrics["dpo/rewards/accuracy"] == 0.5


def test_a_policy_that_is_the_reference_loses_the_logarithm_of_two_and_is_right_about_nothing() -> None:
    loss, metrics = dpo_loss(**pairs((-3.0, -4.0, -3.0, -4.0)))
    assert loss.item() == pytest.approx(0.6931471806, abs=1e-9)
    assert metrics["dpo/rewards/accuracy"] == 0.0
    assert metrics["dpo/rewards/margin"] == 0.0


def test_parts_with_the_number_of_all_pairs_add_up_to_the_whole() -> None:
    other = (-1.0, -1.0, -2.0, -3.0)
    whole, expected = dpo_loss(**pairs(ONE, other))
    parts = [dpo_loss(**pairs(row), num_pairs=2) for row in (ONE, other)]
    assert sum(loss.item() for loss, _ in parts) == pytest.approx(whole.item(), abs=1e-12)
    for name, value in expected.items():
        assert sum(metrics[name] for _, metrics in parts) == pytest.approx(value, abs=1e-12)


def test_a_margin_beyond_what_exp_holds_gives_finite_numbers() -> None:
    given = pairs((1e4, -1e4, 0.0, 0.0), (-1e4, 1e4, 0.0, 0.0))
    loss, _ = dpo_loss(**given, beta=1.0)
    loss.backward()
    assert loss.item() == pytest.approx(1e4)  # 0 and 20000
    assert given["policy_chosen_logprobs_P"].grad.tolist() == pytest.approx([0.0, -0.5])


def test_no_pair_at_all_gives_zero_and_no_mean() -> None:
    loss, metrics = dpo_loss(**pairs())
    assert loss.item() == 0.0
    assert all(value != value for value in metrics.values())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"kind": "hinge"}, "known: ipo, robust, sigmoid"),
        ({"beta": 0.0}, "beta must be above 0"),
        ({"label_smoothing": 0.5}, r"label_smoothing must lie in \[0, 0.5\)"),
        ({"kind": "ipo", "label_smoothing": 0.1}, "no effect on 'ipo'"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        dpo_loss(**{"kind": "sigmoid", **settings}, **pairs(ONE))
