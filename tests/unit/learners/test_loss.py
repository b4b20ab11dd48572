"""Golden vectors worked from the closed forms, and the invariances every loss must keep."""

import math

import pytest
import torch

from strop.learners.losses.policy import aggregate, kl, policy_loss

POLICY = [[-1.0, -0.5, -2.0, -0.1], [-0.7, -1.2, -0.3, -0.9], [-0.2, -0.4, -1.5, -3.0]]
OLD = [[-1.1, -0.9, -1.0, -0.1], [-0.5, -1.2, -1.6, -0.9], [-0.2, -2.4, -1.4, -2.5]]
MASK = [[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0]]
ADVANTAGES = [[1.0], [-0.5], [-1.0]]
REFERENCE = [[-1.0, -0.6, -1.8, -0.2], [-0.9, -1.0, -0.5, -0.9], [-0.3, -0.4, -1.5, -2.0]]
DAPO_CLIP = {"clip_low": 0.2, "clip_high": 0.28}
GSPO_CLIP = {"clip_low": 3e-4, "clip_high": 4e-4}
UPPER_ONLY = {"clip_low": 1.0, "clip_high": 4.0}  # ratios from 0 to 5
KINDS = ["ppo", "gspo", "cispo", "sapo"]
NOTHING = {"actor/pg_clipfrac": 0, "actor/pg_clipfrac_lower": 0, "actor/ppo_kl": 0, "actor/nan_tokens": 0}


def fixture() -> dict[str, torch.Tensor]:
    double = torch.float64
    return {
        "policy_logprobs_BT": torch.tensor(POLICY, dtype=double, requires_grad=True),
        "old_logprobs_BT": torch.tensor(OLD, dtype=double),
        "advantages_BT": torch.tensor(ADVANTAGES, dtype=double),
        "mask_BT": torch.tensor(MASK),
    }


def rows(data: dict[str, torch.Tensor], *picked: int) -> dict[str, torch.Tensor]:
    return {
        name: value.detach()[list(picked)].requires_grad_(name == "policy_logprobs_BT")
        for name, value in data.items()
    }


def loss_and_gradient(kind: str, data: dict[str, torch.Tensor], **settings):
    loss, metrics = policy_loss(kind, **data, **settings)
    loss.backward()
    return loss.item(), data["policy_logprobs_BT"].grad, metrics


@pytest.mark.parametrize(
    ("kind", "settings", "value"),
    [
        ("ppo", {**DAPO_CLIP, "dual_clip": 3.0}, 0.4618128),
        ("ppo", {**DAPO_CLIP, "dual_clip": 3.0, "aggregation": "token-sum"}, 4.1563148),
        ("ppo", {**DAPO_CLIP, "dual_clip": 3.0, "aggregation": "seq-mean-token-sum"}, 1.3854383),
        ("ppo", {**DAPO_CLIP, "dual_clip": 3.0, "aggregation": "seq-mean-token-mean"}, 0.6032193),
        (
            "ppo",
            {**DAPO_CLIP, "dual_clip": 3.0, "aggregation": "seq-mean-token-sum-norm", "max_length": 4},
            0.3463596,
        ),
        ("ppo", {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 3.0}, 0.4707016),
        ("ppo", DAPO_CLIP, 0.9866688),
        ("ppo", {**DAPO_CLIP, "aggregation": "token-sum"}, 8.8800192),
        ("ppo", {**DAPO_CLIP, "aggregation": "seq-mean-token-sum"}, 2.9600067),
        ("ppo", {**DAPO_CLIP, "aggregation": "seq-mean-token-mean"}, 1.3626161),
        ("ppo", {**DAPO_CLIP, "aggregation": "seq-mean-token-sum-norm", "max_length": 4}, 0.7400017),
        ("gspo", {**GSPO_CLIP, "aggregation": "seq-mean-token-mean"}, 0.8433551),
        ("cispo", DAPO_CLIP, 0.1227350),
        ("cispo", {**DAPO_CLIP, "aggregation": "seq-mean-token-sum"}, 0.3682050),
        ("cispo", {**DAPO_CLIP, "aggregation": "seq-mean-token-mean"}, 0.1256393),
        ("cispo", UPPER_ONLY, -0.1666787),
        ("cispo", {**UPPER_ONLY, "aggregation": "token-sum"}, -1.5001082),
        ("sapo", {**DAPO_CLIP, "aggregation": "seq-mean-token-mean"}, 0.6679004),
    ],
)
def test_losses_equal_their_closed_forms(kind: str, settings: dict, value: float):
    loss, _, _ = loss_and_gradient(kind, fixture(), **settings)
    assert loss == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "settings", "gradient"),
    [
        (
            "ppo",
            {**DAPO_CLIP, "dual_clip": 3.0},
            [[-0.122797, 0, -0.040875, 0], [0.045485, 0.055556, 0, 0.055556], [0.111111, 0, 0, 0]],
        ),
        (
            "ppo",
            DAPO_CLIP,
            [
                [-0.122797, 0, -0.040875, 0],
                [0.045485, 0.055556, 0.203850, 0.055556],
                [0.111111, 0.821006, 0, 0],
            ],
        ),
        (
            "ppo",
            {**DAPO_CLIP, "dual_clip": 3.0, "aggregation": "seq-mean-token-mean"},
            [[-0.122797, 0, -0.040875, 0], [0.034114, 0.041667, 0, 0.041667], [0.166667, 0, 0, 0]],
        ),
        (
            "gspo",
            {**GSPO_CLIP, "aggregation": "seq-mean-token-mean"},
            [[-0.094054] * 3 + [0], [0.054855] * 4, [0.453047, 0.453047, 0, 0]],
        ),
        (
            "cispo",
            DAPO_CLIP,
            [
                [-0.122797, -0.142222, -0.088889, 0],
                [0.045485, 0.055556, 0.071111, 0.055556],
                [0.111111, 0.142222, 0, 0],
            ],
        ),
        (
            "cispo",
            UPPER_ONLY,
            [
                [-0.122797, -0.165758, -0.040875, 0],
                [0.045485, 0.055556, 0.203850, 0.055556],
                [0.111111, 0.555556, 0, 0],
            ],
        ),
    ],
)
def test_gradients_equal_their_closed_forms(kind: str, settings: dict, gradient: list[list[float]]):
    _, found, _ = loss_and_gradient(kind, fixture(), **settings)
    torch.testing.assert_close(found, torch.tensor(gradient, dtype=torch.float64), rtol=0, atol=1e-6)


def test_metrics_count_the_tokens_that_clipping_changed():
    _, _, metrics = loss_and_gradient("ppo", fixture(), **DAPO_CLIP, dual_clip=3.0)
    expected = {"actor/pg_clipfrac": 1 / 9, "actor/pg_clipfrac_lower": 2 / 9, "actor/ppo_kl": -0.2888889}
    assert metrics == pytest.approx({**expected, "actor/nan_tokens": 0}, abs=1e-6)
    assert all(type(value) is float for value in metrics.values())
    _, _, metrics = loss_and_gradient("gspo", fixture(), **GSPO_CLIP, aggregation="seq-mean-token-mean")
    assert metrics["actor/pg_clipfrac"] == 0
    assert metrics["actor/pg_clipfrac_lower"] == 0
    _, _, metrics = loss_and_gradient("cispo", fixture(), **DAPO_CLIP)
    assert metrics["actor/pg_clipfrac"] == pytest.approx(4 / 9)  # outside the bounds on either side
    _, _, metrics = loss_and_gradient("sapo", fixture(), **DAPO_CLIP)
    assert metrics["actor/pg_clipfrac"] == 0


def test_the_slope_of_sapo_is_the_ratio_s_at_one_and_fades_faster_for_negative_advantages():
    """Its gradient with respect to r is 4 p (1 - p) A with p = sigmoid(tau (r - 1)): A itself at r = 1."""
    data = fixture()
    _, gradient, _ = loss_and_gradient("sapo", data, **DAPO_CLIP, aggregation="token-sum")
    for row, column in [(0, 0), (0, 2), (1, 1), (1, 2), (2, 1)]:
        ratio = math.exp(POLICY[row][column] - OLD[row][column])
        advantage = ADVANTAGES[row][0]
        p = 1 / (1 + math.exp(-(1.0 if advantage > 0 else 1.05) * (ratio - 1)))
        expected = -4 * p * (1 - p) * advantage * ratio
        assert gradient[row, column].item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", ["policy_logprobs_BT", "old_logprobs_BT", "advantages_BT"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_none_is_masked_counted_and_poisons_nothing(kind: str, which: str, bad: float):
    settings = settings_for(kind, "token-mean")
    masked = fixture()
    masked["mask_BT"] = masked["mask_BT"].clone()
    masked["mask_BT"][1, 2] = 0
    expected, expected_gradient, without = loss_and_gradient(kind, masked, **settings)
    data = fixture()
    data["advantages_BT"] = data["advantages_BT"].expand(3, 4).clone()
    data[which] = data[which].detach().clone()
    data[which][1, 2] = bad
    data["policy_logprobs_BT"].requires_grad_()
    loss, gradient, metrics = loss_and_gradient(kind, data, **settings)
    assert loss == expected
    assert torch.equal(gradient, expected_gradient)
    assert metrics == {**without, "actor/nan_tokens": 1}


def test_token_weights_multiply_the_loss_of_their_token_and_have_no_gradient():
    data = fixture()
    _, plain, _ = loss_and_gradient("ppo", data, **DAPO_CLIP)
    weights = torch.full((3, 4), 1.0, dtype=torch.float64)
    weights[0, 0] = 0.5
    weights[2, 3] = math.nan  # outside the mask
    weights.requires_grad_()
    _, weighted, _ = loss_and_gradient("ppo", fixture(), **DAPO_CLIP, token_weights_BT=weights)
    assert weights.grad is None
    expected = plain.clone()
    expected[0, 0] *= 0.5
    torch.testing.assert_close(weighted, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("kind", "value", "gradient"),
    [
        ("k1", 0.0222222, [[1 / 9] * 3 + [0], [1 / 9] * 4, [1 / 9, 1 / 9, 0, 0]]),
        ("k2", 0.01, [[0, 0.011111, -0.022222, 0], [0.022222, -0.022222, 0.022222, 0], [0.011111, 0, 0, 0]]),
        (
            "k3",
            0.0099935,
            [[0, 0.010574, -0.024600, 0], [0.020141, -0.024600, 0.020141, 0], [0.010574, 0, 0, 0]],
        ),
        (
            "k3+",
            0.0099935,
            [[0, 0.011111, -0.022222, 0], [0.022222, -0.022222, 0.022222, 0], [0.011111, 0, 0, 0]],
        ),
        (
            "abs",
            0.1111111,
            [[0, 0.111111, -0.111111, 0], [0.111111, -0.111111, 0.111111, 0], [0.111111, 0, 0, 0]],
        ),
    ],
)
def test_kl_estimators_equal_their_closed_forms(kind: str, value: float, gradient: list[list[float]]):
    policy = torch.tensor(POLICY, dtype=torch.float64, requires_grad=True)
    mean = aggregate(
        kl(kind, policy, torch.tensor(REFERENCE, dtype=torch.float64)), torch.tensor(MASK), "token-mean"
    )
    mean.backward()
    assert mean.item() == pytest.approx(value, abs=1e-6)
    torch.testing.assert_close(policy.grad, torch.tensor(gradient, dtype=torch.float64), rtol=0, atol=1e-6)


def test_expected_k2_gradient_is_the_gradient_of_the_exact_kl():
    torch.manual_seed(0)
    logits = torch.randn(5, dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.randn(5, dtype=torch.float64), -1)
    logprobs = torch.log_softmax(logits, -1)
    probabilities = logprobs.exp()
    (exact,) = torch.autograd.grad((probabilities * (logprobs - reference)).sum(), logits, retain_graph=True)
    (estimated,) = torch.autograd.grad((probabilities.detach() * kl("k2", logprobs, reference)).sum(), logits)
    torch.testing.assert_close(estimated, exact, rtol=1e-9, atol=1e-12)


ALL = ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


def settings_for(kind: str, aggregation: str) -> dict:
    clips = {"ppo": {**DAPO_CLIP, "dual_clip": 3.0}, "cispo": DAPO_CLIP, "sapo": DAPO_CLIP}
    clip = clips.get(kind, GSPO_CLIP)
    length = {"max_length": 7} if aggregation == "seq-mean-token-sum-norm" else {}
    return {**clip, **length, "aggregation": aggregation}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("aggregation", ALL)
def test_micro_batches_with_global_denominators_add_up_to_the_whole(kind: str, aggregation: str):
    settings = settings_for(kind, aggregation)
    loss, gradient, metrics = loss_and_gradient(kind, fixture(), **settings)
    parts = [
        loss_and_gradient(kind, rows(fixture(), *picked), **settings, num_tokens=9, num_rows=3)
        for picked in ((0,), (1, 2))
    ]
    assert sum(part[0] for part in parts) == pytest.approx(loss, abs=1e-12)
    torch.testing.assert_close(torch.cat([part[1] for part in parts]), gradient, rtol=0, atol=1e-12)
    for name, value in metrics.items():
        assert sum(part[2][name] for part in parts) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("aggregation", ALL)
def test_permuting_rows_permutes_the_gradient(kind: str, aggregation: str):
    settings = settings_for(kind, aggregation)
    loss, gradient, _ = loss_and_gradient(kind, fixture(), **settings)
    permuted, permuted_gradient, _ = loss_and_gradient(kind, rows(fixture(), 2, 0, 1), **settings)
    assert permuted == pytest.approx(loss, abs=1e-12)
    torch.testing.assert_close(permuted_gradient, gradient[[2, 0, 1]], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("absurd", [100.0, -1e30, float("nan"), float("inf")])
def test_masked_positions_change_nothing_whatever_they_hold(kind: str, absurd: float):
    settings = settings_for(kind, "seq-mean-token-mean")
    loss, gradient, metrics = loss_and_gradient(kind, fixture(), **settings)
    data = fixture()
    outside = ~data["mask_BT"].bool()
    data["advantages_BT"] = data["advantages_BT"].expand(3, 4).masked_fill(outside, absurd)
    data["old_logprobs_BT"] = data["old_logprobs_BT"].masked_fill(outside, -absurd)
    data["policy_logprobs_BT"] = (
        data["policy_logprobs_BT"].detach().masked_fill(outside, absurd).requires_grad_()
    )
    changed, changed_gradient, changed_metrics = loss_and_gradient(kind, data, **settings)
    assert changed == loss
    assert torch.equal(changed_gradient, gradient)
    assert changed_metrics == metrics


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("aggregation", ALL)
def test_a_fully_masked_micro_batch_gives_zero_and_a_working_backward(kind: str, aggregation: str):
    data = fixture()
    data["mask_BT"] = torch.zeros(3, 4)
    loss, gradient, metrics = loss_and_gradient(
        kind, data, **settings_for(kind, aggregation), num_tokens=9, num_rows=3
    )
    assert loss == 0
    assert torch.equal(gradient, torch.zeros(3, 4, dtype=torch.float64))
    assert metrics == NOTHING


def test_metrics_of_no_token_are_nan_and_not_zero():
    data = fixture()
    data["mask_BT"] = torch.zeros(3, 4)
    _, _, metrics = loss_and_gradient("ppo", data, **DAPO_CLIP)
    assert metrics.pop("actor/nan_tokens") == 0
    assert all(value != value for value in metrics.values())


@pytest.mark.parametrize("aggregation", [kind for kind in ALL if kind.startswith("seq-mean")])
def test_a_masked_row_leaves_numerator_and_denominator(aggregation: str):
    settings = settings_for("ppo", aggregation)
    data = fixture()
    data["mask_BT"] = torch.tensor([MASK[0], MASK[1], [0, 0, 0, 0]])
    loss, _, _ = loss_and_gradient("ppo", data, **settings)
    without, _, _ = loss_and_gradient("ppo", rows(fixture(), 0, 1), **settings)
    assert loss == pytest.approx(without, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_cut_into_rows_of_like_length_weighs_the_same(kind: str):
    """One row of four equal-ratio tokens, or two rows of two with weight 1/2: the same loss and gradient."""
    clip = settings_for(kind, "seq-mean-token-mean")
    policy = torch.tensor([[-0.7, -1.2, -0.5, -0.9], [-0.3, -0.4, 0, 0]], dtype=torch.float64)
    old = policy - torch.tensor([[0.1, 0.1, 0.1, 0.1], [0.2, -0.1, 0, 0]], dtype=torch.float64)
    whole = {
        "policy_logprobs_BT": policy.clone().requires_grad_(),
        "old_logprobs_BT": old,
        "advantages_BT": torch.tensor([[-0.5], [1.0]], dtype=torch.float64),
        "mask_BT": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
    }
    cut = {
        "policy_logprobs_BT": torch.stack([policy[0, :2], policy[0, 2:], policy[1, :2]]).requires_grad_(),
        "old_logprobs_BT": torch.stack([old[0, :2], old[0, 2:], old[1, :2]]),
        "advantages_BT": torch.tensor([[-0.5], [-0.5], [1.0]], dtype=torch.float64),
        "mask_BT": torch.ones(3, 2),
    }
    loss, gradient, _ = loss_and_gradient(kind, whole, **clip)
    cut_loss, cut_gradient, _ = loss_and_gradient(kind, cut, **clip, weights_B=torch.tensor([0.5, 0.5, 1.0]))
    assert cut_loss == pytest.approx(loss, abs=1e-12)
    torch.testing.assert_close(
        cut_gradient.view(-1), gradient[[0, 0, 0, 0, 1, 1], [0, 1, 2, 3, 0, 1]], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_equal_policy_and_old_give_ratio_one_and_nothing_clipped(kind: str):
    data = fixture()
    data["old_logprobs_BT"] = data["policy_logprobs_BT"].detach()
    loss, gradient, metrics = loss_and_gradient(kind, data, **settings_for(kind, "token-mean"))
    if kind in ("ppo", "gspo"):
        assert loss == pytest.approx((-3 * 1.0 + 4 * 0.5 + 2 * 1.0) / 9, abs=1e-12)
    expected = -torch.tensor(ADVANTAGES, dtype=torch.float64) * torch.tensor(MASK) / 9
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)
    assert metrics == NOTHING


def test_log_ratios_beyond_twenty_are_cut_and_stay_finite():
    data = fixture()
    data["old_logprobs_BT"] = data["policy_logprobs_BT"].detach() - 1000
    data["advantages_BT"] = -torch.ones(3, 1, dtype=torch.float64)
    loss, gradient, _ = loss_and_gradient("ppo", data, **DAPO_CLIP)
    assert loss == pytest.approx(torch.tensor(20.0, dtype=torch.float64).exp().item())
    assert torch.equal(gradient, torch.zeros(3, 4, dtype=torch.float64))


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("pppo", DAPO_CLIP, "unknown policy loss 'pppo'"),
        ("gspo", {**GSPO_CLIP, "dual_clip": 3.0}, "dual_clip"),
        ("cispo", {**DAPO_CLIP, "dual_clip": 3.0}, "dual_clip"),
        ("ppo", {**DAPO_CLIP, "dual_clip": 0.5}, "above 1"),
        ("ppo", {**DAPO_CLIP, "aggregation": "mean"}, "unknown aggregation 'mean'"),
        ("ppo", {**DAPO_CLIP, "max_length": 4}, "max_length"),
        ("ppo", {**DAPO_CLIP, "aggregation": "seq-mean-token-sum-norm"}, "max_length"),
    ],
)
def test_settings_without_effect_are_refused(kind: str, settings: dict, message: str):
    with pytest.raises(ValueError, match=message):
        policy_loss(kind, **fixture(), **settings)


def test_an_unknown_kl_estimator_is_refused():
    with pytest.raises(ValueError, match=r"k1, k2, k3, k3\+, abs"):
        kl("k4", torch.zeros(1, 1), torch.zeros(1, 1))
