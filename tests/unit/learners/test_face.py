"""The stable face of the pure functions: called as outside checks call them, by these very names."""

import inspect

import numpy as np
import pytest
import torch

from strop.learners.losses import policy as loss
from strop.rl import advantage
from strop.tracing.metrics import check_names

POLICY = torch.tensor([[-1.0, -0.5, -2.0, -0.1], [-0.7, -1.2, -0.3, -0.9], [-0.2, -0.4, -1.5, -3.0]])
OLD = torch.tensor([[-1.1, -0.9, -1.0, -0.1], [-0.5, -1.2, -1.6, -0.9], [-0.2, -2.4, -1.4, -2.5]])
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0]])
ADVANTAGES = torch.tensor([[1.0], [-0.5], [-1.0]]).expand(3, 4)

KEYWORDS = {
    loss.policy_loss: "policy_logprobs_BT old_logprobs_BT advantages_BT mask_BT clip_low clip_high",
    loss.value_loss: "values_BT old_values_BT returns_BT mask_BT clip",
    loss.kl: "",
    advantage.group_advantages: "",
    advantage.gae: "gamma lam",
}
POSITIONAL = {
    loss.policy_loss: "kind",
    loss.value_loss: "",
    loss.kl: "kind policy_logprobs_BT reference_logprobs_BT",
    advantage.group_advantages: "kind rewards_G",
    advantage.gae: "rewards_T values_T mask_T",
}


@pytest.mark.parametrize("function", KEYWORDS, ids=lambda one: one.__name__)
def test_what_a_caller_must_give_has_these_names_and_is_all(function):
    needed = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
    by_name = [one.name for one in needed if one.kind is one.KEYWORD_ONLY]
    by_place = [one.name for one in needed if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert (by_place, by_name) == (POSITIONAL[function].split(), KEYWORDS[function].split())


def test_what_a_caller_may_give_is_off_unless_given():
    defaults = {name: one.default for name, one in inspect.signature(loss.policy_loss).parameters.items()}
    assert (defaults["dual_clip"], defaults["aggregation"], defaults["max_length"]) == (
        None,
        "token-mean",
        None,
    )


@pytest.mark.parametrize("mask", [MASK, MASK.bool(), MASK.float()], ids=["whole", "bool", "float"])
@pytest.mark.parametrize(
    ("kind", "settings", "value"),
    [
        (
            "ppo",
            {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0, "aggregation": "token-mean"},
            0.4618128,
        ),
        ("ppo", {"clip_low": 0.2, "clip_high": 0.28, "aggregation": "token-sum"}, 8.8800192),
        (
            "ppo",
            {
                "clip_low": 0.2,
                "clip_high": 0.28,
                "dual_clip": 3.0,
                "aggregation": "seq-mean-token-sum-norm",
                "max_length": 4,
            },
            0.3463596,
        ),
        ("gspo", {"clip_low": 3e-4, "clip_high": 4e-4, "aggregation": "seq-mean-token-mean"}, 0.8433551),
        ("cispo", {"clip_low": 0.2, "clip_high": 0.28, "aggregation": "seq-mean-token-sum"}, 0.3682050),
        ("sapo", {"clip_low": 0.2, "clip_high": 0.28, "aggregation": "seq-mean-token-mean"}, 0.6679004),
    ],
)
def test_the_policy_loss_takes_masks_of_any_dtype_and_gives_a_scalar_and_plain_floats(
    mask, kind, settings, value
):
    found, metrics = loss.policy_loss(
        kind,
        policy_logprobs_BT=POLICY,
        old_logprobs_BT=OLD,
        advantages_BT=ADVANTAGES,
        mask_BT=mask,
        **settings,
    )
    assert found.item() == pytest.approx(value, abs=2e-6)
    assert metrics["actor/ppo_kl"] == pytest.approx(-0.2888889, abs=1e-6)
    assert {type(one) for one in metrics.values()} == {float}
    check_names(metrics)


def test_the_value_loss_gives_a_scalar_and_plain_floats():
    values, old, returns = torch.tensor([[1.0, 0.3]]), torch.tensor([[0.0, 0.2]]), torch.tensor([[2.0, 0.0]])
    found, metrics = loss.value_loss(
        values_BT=values, old_values_BT=old, returns_BT=returns, mask_BT=torch.ones(1, 2), clip=0.5
    )
    assert found.item() == pytest.approx(0.5 * (1.5**2 + 0.3**2) / 2)
    assert metrics == pytest.approx({"critic/vf_clipfrac": 0.5, "critic/vpred_mean": 0.65})
    assert {type(one) for one in metrics.values()} == {float}
    check_names(metrics)


@pytest.mark.parametrize(
    ("kind", "value"), [("k1", -0.2), ("k2", 0.02), ("k3", 0.0214028), ("k3+", 0.0214028)]
)
def test_the_kl_is_one_number_a_token(kind, value):
    found = loss.kl(kind, torch.tensor([[-1.2]]), torch.tensor([[-1.0]]))
    assert found.tolist() == [[pytest.approx(value, abs=1e-6)]]


@pytest.mark.parametrize("made", [list, tuple, np.array], ids=["list", "tuple", "array"])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("grpo", [1.3055797, 0.2611159, -0.7833478, -0.7833478]),
        ("dr_grpo", [0.625, 0.125, -0.375, -0.375]),
        ("rloo", [0.8333333, 0.1666667, -0.5, -0.5]),
        ("reinforce_pp_baseline", [0.625, 0.125, -0.375, -0.375]),
    ],
)
def test_advantages_of_lists_and_arrays_are_lists_of_plain_floats(made, kind, expected):
    found = advantage.group_advantages(kind, made([1.0, 0.5, 0.0, 0.0]))
    assert found == pytest.approx(expected, abs=1e-6)
    assert {type(one) for one in found} == {float}


@pytest.mark.parametrize("made", [list, tuple, np.array], ids=["list", "tuple", "array"])
def test_gae_of_lists_and_arrays_is_two_lists_of_plain_floats(made):
    advantages, returns = advantage.gae(
        made([0.0, 9.0, 1.0]), made([0.5, 9.0, 0.5]), made([1, 0, 1]), gamma=1.0, lam=0.5
    )
    assert (advantages, returns) == ([0.25, 0.0, 0.5], [0.75, 0.0, 1.0])
    assert {type(one) for one in (*advantages, *returns)} == {float}
