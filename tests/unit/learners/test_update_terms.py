"""Mismatch, rejection, entropy and KL in a step of the learner, on a tiny model."""

import math
from dataclasses import replace

import pytest
import torch

from fakes.learning import (
    FLAT,
    GROUP,
    OTHER,
    largest_difference,
    learner,
    logprobs,
    weights,
    with_behaviour,
)
from fakes.packs import batch, mini_batch
from strop.learners.local.forward import tree_logprobs
from strop.learners.local.packed_trees import pack_trees
from strop.rl.batch import pack


def test_entropy_is_that_of_the_sampling_temperature_at_the_start_of_the_step():
    ours = learner()
    [trees] = pack_trees([GROUP], max_nodes=1000)
    with torch.no_grad():
        _, entropies_E = tree_logprobs(ours.weights(), trees)
    expected = entropies_E[trees.sequence_edges_ST][trees.mask_ST].mean().item()
    assert ours.update(batch(mini_batch(GROUP)))["actor/entropy"] == pytest.approx(expected, abs=1e-9)


def test_behaviour_equal_to_old_gives_no_mismatch():
    ours = learner()
    metrics = ours.update(batch(mini_batch(with_behaviour(ours, GROUP))))
    assert metrics["mismatch/logprob_diff_mean"] == pytest.approx(0, abs=1e-6)
    assert metrics["mismatch/logprob_diff_max"] == pytest.approx(0, abs=1e-6)
    assert metrics["mismatch/kl_k1"] == pytest.approx(0, abs=1e-6)
    assert metrics["mismatch/kl_k3"] == pytest.approx(0, abs=1e-7)
    assert metrics["mismatch/effective_sample_size"] == pytest.approx(1, abs=1e-6)


def test_half_a_nat_on_one_token_shows_in_the_mismatch_as_by_hand():
    ours = learner()
    metrics = ours.update(batch(mini_batch(with_behaviour(ours, GROUP, change=0.5))))
    tokens, weight = 13, math.exp(0.5)  # 3 + 6 + 4 sampled tokens
    assert metrics["mismatch/logprob_diff_mean"] == pytest.approx(0.5 / tokens, abs=1e-6)
    assert metrics["mismatch/logprob_diff_max"] == pytest.approx(0.5, abs=1e-6)
    assert metrics["mismatch/kl_k1"] == pytest.approx(-0.5 / tokens, abs=1e-6)
    assert metrics["mismatch/kl_k3"] == pytest.approx((weight - 1.5) / tokens, abs=1e-6)
    expected = (tokens - 1 + weight) ** 2 / (tokens * (tokens - 1 + weight**2))
    assert metrics["mismatch/effective_sample_size"] == pytest.approx(expected, abs=1e-6)
    assert metrics["actor/ppo_kl"] == 0  # the engine's logprobs enter no ratio


def test_a_behaviour_logprob_that_is_not_a_number_is_left_out():
    ours = learner()
    metrics = ours.update(batch(mini_batch(with_behaviour(ours, GROUP, change=math.nan))))
    assert metrics["mismatch/logprob_diff_mean"] == pytest.approx(0, abs=1e-6)
    assert metrics["actor/num_updates"] == 1


def test_one_token_without_a_behaviour_logprob_leaves_numerator_and_denominator():
    ours = learner(max_grad_norm=1e9)
    metrics = ours.update(batch(mini_batch(with_behaviour(ours, GROUP, change=math.nan))))
    assert metrics["actor/nan_tokens"] == 1
    without = learner(max_grad_norm=1e9)
    cut = with_behaviour(without, GROUP)
    first = cut.sequences[0]
    prompt = len(first.token_ids) - first.num_loss_tokens
    mask = (*[False] * (prompt + 1), *[True] * (first.num_loss_tokens - 1))
    masked = replace(first, loss_mask=mask, behaviour_logprobs=(*[0.0] * (prompt + 1), -1.0, -1.0))
    expected = without.update(batch(mini_batch(pack([masked, *cut.sequences[1:]]))))
    assert metrics["actor/grad_norm"] == pytest.approx(expected["actor/grad_norm"], rel=1e-9)
    for name, weight in ours.weights().named_parameters():
        torch.testing.assert_close(weight.grad, without.weights().get_parameter(name).grad, rtol=0, atol=1e-9)


def test_a_rollout_without_a_single_behaviour_logprob_is_no_rollout_of_the_update():
    ours, without = learner(max_grad_norm=1e9), learner(max_grad_norm=1e9)
    members = list(GROUP.sequences)
    bad = tuple(math.nan if sampled else 0.0 for sampled in members[2].loss_mask)
    spoilt = pack([*members[:2], replace(members[2], behaviour_logprobs=bad)])
    metrics = ours.update(batch(mini_batch(spoilt)))
    assert metrics["actor/nan_tokens"] == members[2].num_loss_tokens
    expected = without.update(batch(mini_batch(pack(members[:2]))))
    assert metrics["actor/grad_norm"] == pytest.approx(expected["actor/grad_norm"], rel=1e-9)
    assert metrics["actor/pg_loss"] == pytest.approx(expected["actor/pg_loss"], abs=1e-12)


def test_when_no_token_counts_nothing_is_stepped():
    ours = learner(weight_decay=0.5)
    ours.update(batch(mini_batch(OTHER)))  # Adam has momentum now
    before = weights(ours)
    members = [
        replace(one, behaviour_logprobs=tuple(math.nan if m else 0.0 for m in one.loss_mask))
        for one in GROUP.sequences
    ]
    metrics = ours.update(batch(mini_batch(pack(members)), step=2))
    assert metrics["actor/num_updates"] == metrics["actor/skipped_updates"] == 0
    assert largest_difference(before, weights(ours)) == 0


def test_the_reference_kl_is_measured_without_any_kl_term_too():
    ours = learner(reference_kl=True)
    before, mask = logprobs(ours, GROUP)
    ours.update(batch(mini_batch(GROUP)))
    now, _ = logprobs(ours, GROUP)
    metrics = ours.update(batch(mini_batch(GROUP, OTHER), step=2))
    # On the first pack of the step, which is that group, though the other one is in the same pass.
    assert metrics["actor/reference_kl_k1"] == pytest.approx((now - before)[mask].mean().item(), rel=1e-6)
    assert metrics["actor/reference_kl_k3"] > 0
    assert "actor/kl_loss" not in metrics
    assert not any("reference" in name for name in learner().update(batch(mini_batch(GROUP))))


def test_an_entropy_bonus_raises_the_entropy_and_is_in_the_loss():
    plain, bold = learner(), learner(entropy_coeff=1.0)
    for step in range(1, 6):
        last = plain.update(batch(mini_batch(GROUP), step=step))
        metrics = bold.update(batch(mini_batch(GROUP), step=step))
    assert metrics["actor/entropy"] > last["actor/entropy"]
    assert metrics["actor/loss"] == pytest.approx(metrics["actor/pg_loss"] - metrics["actor/entropy_loss"])
    assert "actor/entropy_loss" not in last


def test_the_entropy_bonus_pulls_at_groups_without_an_advantage():
    assert learner().update(batch(mini_batch(FLAT)))["actor/num_updates"] == 0
    assert learner(entropy_coeff=0.1).update(batch(mini_batch(FLAT)))["actor/num_updates"] == 1


def test_importance_weights_scale_the_tokens_that_the_engine_saw_otherwise():
    """With a cap that lowers it: half a nat is a ratio of 1.65, cut at 1.2."""
    for cap, weight in ((1.2, 1.2), (2.0, math.exp(0.5))):
        ours = learner(algorithm="dapo", rollout_is="token", rollout_is_threshold=cap, max_grad_norm=1e9)
        metrics = ours.update(batch(mini_batch(with_behaviour(ours, GROUP, change=0.5))))
        assert metrics["mismatch/truncated_ratio"] == pytest.approx((1 if cap < 1.6 else 0) / 13)
        # Advantages 1, -0.5, -0.5 on 3, 6, 4 tokens at ratio 1.
        assert metrics["actor/pg_loss"] == pytest.approx(-(2 + weight - 0.5 * 6 - 0.5 * 4) / 13, rel=1e-6)


def test_a_rejected_row_leaves_numerator_and_denominator():
    settings_ = {"algorithm": "grpo", "max_grad_norm": 1e9}
    ours = learner(rollout_rs="geometric", rollout_rs_low=0.9, rollout_rs_high=1.1, **settings_)
    metrics = ours.update(batch(mini_batch(with_behaviour(ours, GROUP, change=0.5))))
    assert metrics["mismatch/masked_ratio"] == pytest.approx(3 / 13)  # the first row has 3 tokens
    without = learner(**settings_)
    kept = with_behaviour(without, GROUP).sequences[1:]
    expected = without.update(batch(mini_batch(pack(list(kept)))))
    assert metrics["actor/pg_loss"] == pytest.approx(expected["actor/pg_loss"], abs=1e-9)
    assert metrics["actor/grad_norm"] == pytest.approx(expected["actor/grad_norm"], rel=1e-6)


def test_rejection_of_single_tokens_renormalises_their_row():
    ours = learner(algorithm="grpo", rollout_rs="token", rollout_rs_low=0.9, rollout_rs_high=1.1)
    metrics = ours.update(batch(mini_batch(with_behaviour(ours, GROUP, change=0.5))))
    assert metrics["mismatch/masked_ratio"] == pytest.approx(1 / 13)
    assert metrics["actor/pg_loss"] == pytest.approx(0, abs=1e-7)  # three rows of weight 1/3 each, still


def test_rejection_of_everything_steps_nothing_and_says_so():
    ours = learner(algorithm="grpo", rollout_rs="geometric")
    before = weights(ours)
    metrics = ours.update(batch(mini_batch(GROUP)))  # behaviour logprobs of -1 are far from the learner's
    assert metrics["mismatch/masked_ratio"] == 1
    assert metrics["actor/num_updates"] == 0
    assert largest_difference(before, weights(ours)) == 0


def test_the_kl_loss_is_zero_at_the_start_weights_and_pulls_back_to_them():
    free, held = learner(), learner(kl_loss_coef=10.0)
    start = weights(held)
    first = held.update(batch(mini_batch(GROUP)))
    assert first["actor/kl_loss"] == first["actor/reference_kl_k1"] == first["actor/reference_kl_k3"] == 0
    free.update(batch(mini_batch(GROUP)))
    for step in range(2, 6):
        free.update(batch(mini_batch(GROUP), step=step))
        last = held.update(batch(mini_batch(GROUP), step=step))
    assert last["actor/kl_loss"] > 0
    assert last["actor/reference_kl_k3"] > 0
    assert last["actor/loss"] == pytest.approx(last["actor/pg_loss"] + 10 * last["actor/kl_loss"])
    assert largest_difference(weights(held), start) < largest_difference(weights(free), start)


def test_a_kl_loss_reports_its_estimators_and_others_do_not_appear():
    ours = learner(kl_loss_coef=0.1)
    before, mask = logprobs(ours, GROUP)
    ours.update(batch(mini_batch(GROUP)))
    now, _ = logprobs(ours, GROUP)
    metrics = ours.update(batch(mini_batch(GROUP), step=2))
    delta = now - before
    lengths = mask.sum(-1)
    k2 = ((0.5 * delta**2 * mask).sum(-1) / lengths).mean().item()
    assert metrics["actor/kl_loss"] == pytest.approx(k2, rel=1e-6)
    assert metrics["actor/reference_kl_k1"] == pytest.approx(delta[mask].mean().item(), rel=1e-6)
    k3 = (torch.exp(-delta) - 1 + delta)[mask].mean().item()
    assert metrics["actor/reference_kl_k3"] == pytest.approx(k3, rel=1e-6)
    assert not any("kl_loss" in name for name in learner().update(batch(mini_batch(GROUP))))
