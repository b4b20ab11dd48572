"""Each knob of the loss turns the gradient, and only the algorithms that read it accept it."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from fakes.packs import mini_batch, random_pack
from fakes.ranks import part_of_gradient
from strop.rl.batch import pack
from strop.schema.batch import Sequence

PACKS = [random_pack(0, lengths=(3, 9, 4)), random_pack(1, lengths=(1, 6, 2), advantages=(0.3, -1.2, 0.9))]
WHOLE = mini_batch(*PACKS)
SHORT = {"max_length": 32, "max_prompt_length": 8}


def gradient(**settings: Any) -> torch.Tensor:
    return part_of_gradient({**SHORT, **settings}, WHOLE, PACKS)


@pytest.mark.parametrize(
    ("algorithm", "knob"),
    [
        ("gspo", {"clip_ratio_low": 0.5, "clip_ratio_high": 0.9}),
        ("gspo", {"loss_agg_mode": "token-mean"}),
        ("grpo", {"clip_ratio_low": 0.01}),
        ("grpo", {"clip_ratio_high": 5.0}),
        ("grpo", {"dual_clip": 1.01}),
        ("grpo", {"loss_agg_mode": "seq-mean-token-sum"}),
        ("grpo", {"loss_agg_mode": "token-sum"}),
        ("grpo", {"entropy_coeff": 0.1}),
        ("grpo", {"kl_loss_coef": 0.1}),
        ("grpo", {"rollout_is": "token"}),
        ("grpo", {"rollout_is": "sequence"}),
        ("dr_grpo", {"max_length": 16}),
        ("cispo", {"clip_ratio_high": 0.01}),
        ("sapo", {"tau_pos": 3.0}),
        ("sapo", {"tau_neg": 3.0}),
    ],
)
def test_a_knob_turns_the_gradient(algorithm: str, knob: dict[str, Any]):
    difference = gradient(algorithm=algorithm, **knob) - gradient(algorithm=algorithm)
    assert difference.abs().max() > 1e-5


@pytest.mark.parametrize("kind", ["k1", "k3", "abs"])
def test_the_estimator_of_the_kl_turns_the_gradient(kind: str):
    found = gradient(algorithm="grpo", kl_loss_coef=1.0, kl_loss_type=kind)
    assert (found - gradient(algorithm="grpo", kl_loss_coef=1.0)).abs().max() > 1e-5


def test_k3_plus_has_the_gradient_of_k2():
    found = gradient(algorithm="grpo", kl_loss_coef=1.0, kl_loss_type="k3+")
    torch.testing.assert_close(
        found, gradient(algorithm="grpo", kl_loss_coef=1.0, kl_loss_type="k2"), rtol=0, atol=1e-12
    )


def test_thresholds_of_the_importance_weights_cut_them():
    """The engine gave these tokens far less than the learner does: every ratio is cut, or none."""
    packs = [pack([_unlikely(one) for one in each.sequences]) for each in PACKS]
    cut, plain, whole = (
        part_of_gradient({"algorithm": "grpo", **SHORT, **settings}, WHOLE, packs)
        for settings in (
            {"rollout_is": "token", "rollout_is_threshold": 3.0},
            {},
            {"rollout_is": "token", "rollout_is_threshold": 1e6},
        )
    )
    torch.testing.assert_close(cut, 3 * plain, rtol=0, atol=1e-9)
    assert whole.norm() > 2 * cut.norm()


def _unlikely(one: Sequence) -> Sequence:
    return replace(one, behaviour_logprobs=tuple(-12.0 * sampled for sampled in one.loss_mask))
