"""One step of the learner, on a tiny model: what it computes, what it steps, what it reports."""

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
)
from fakes.model import tiny_llama
from fakes.packs import batch, mini_batch, random_pack, sequence
from strop.algorithms import algorithm_names
from strop.learners.local import policy
from strop.learners.local.forward import tree_logprobs
from strop.rl.batch import pack
from strop.schema.batch import LossNormalizer


@pytest.mark.parametrize("algorithm", ["gspo", "grpo"])
def test_the_gradient_is_that_of_the_formula_at_ratio_one(algorithm: str):
    """With one mini-batch the ratio is 1: the gradient is that of -mean_i A_i mean_t logprob."""
    ours = learner(algorithm=algorithm, max_grad_norm=1e9)
    plain = tiny_llama().double()
    rows = []
    for item in GROUP.sequences:
        logits = plain(input_ids=torch.tensor([item.token_ids])).logits[0, :-1] / 0.7
        sampled = torch.tensor(item.loss_mask)[1:]
        taken = torch.log_softmax(logits, -1).gather(1, torch.tensor(item.token_ids)[1:, None])[sampled, 0]
        rows.append(-item.advantage * taken.mean())
    torch.stack(rows).mean().backward()
    metrics = ours.update(batch(mini_batch(GROUP)))
    gradients = [weight.grad for weight in plain.parameters()]
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    assert metrics["actor/grad_norm"] == pytest.approx(norm.item(), rel=1e-6)
    for name, weight in ours.weights().named_parameters():
        torch.testing.assert_close(weight.grad, plain.get_parameter(name).grad, rtol=0, atol=1e-6)
    # From the same gradient, so that rounding in one of the two cannot flip a step of Adam.
    for name, weight in plain.named_parameters():
        weight.grad = ours.weights().get_parameter(name).grad.clone()
    torch.optim.AdamW(plain.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0).step()
    assert largest_difference(weights(ours), dict(plain.named_parameters())) < 1e-12


def test_one_mini_batch_has_ratio_one_and_needs_no_pass_for_old_logprobs(monkeypatch: pytest.MonkeyPatch):
    passes = []
    monkeypatch.setattr(policy, "tree_logprobs", lambda *given: passes.append(1) or tree_logprobs(*given))
    metrics = learner().update(batch(mini_batch(GROUP, OTHER)))
    assert len(passes) == 1
    assert metrics["actor/ppo_kl"] == 0
    assert metrics["actor/pg_clipfrac"] == 0
    assert metrics["actor/pg_clipfrac_lower"] == 0
    assert metrics["actor/num_updates"] == 1
    assert metrics["actor/skipped_updates"] == 0
    # Advantages 1, -0.5, -0.5 sum to 0 over the rollouts of each group.
    assert metrics["actor/pg_loss"] == pytest.approx(0, abs=1e-9)
    assert metrics["actor/loss"] == metrics["actor/pg_loss"]


def test_later_mini_batches_are_compared_with_the_start_of_the_step():
    ours = learner()
    before, mask = logprobs(ours, OTHER)
    only_first = learner()
    only_first.update(batch(mini_batch(GROUP)))
    between, _ = logprobs(only_first, OTHER)
    metrics = ours.update(batch(mini_batch(GROUP), mini_batch(OTHER)))
    drift = (before - between)[mask].mean().item()
    assert drift != 0
    assert metrics["actor/ppo_kl"] == pytest.approx(drift / 2, rel=1e-6)  # the first update's is 0
    assert metrics["actor/num_updates"] == 2
    assert ours.policy_version == 2


@pytest.mark.parametrize("algorithm", ["gspo", "grpo"])
@pytest.mark.parametrize("max_nodes", [8, 20])
def test_micro_batches_change_neither_weights_nor_metrics(
    algorithm: str, max_nodes: int, monkeypatch: pytest.MonkeyPatch
):
    minis = (mini_batch(GROUP, FLAT), mini_batch(OTHER, random_pack(3)))
    whole = learner(algorithm=algorithm, kl_loss_coef=0.1)
    expected = whole.update(batch(*minis))
    monkeypatch.setattr(policy, "MAX_NODES", max_nodes)
    cut = learner(algorithm=algorithm, kl_loss_coef=0.1)
    metrics = cut.update(batch(*minis))
    assert largest_difference(weights(whole), weights(cut)) < 1e-6
    del metrics["timing/s/old_log_prob"], expected["timing/s/old_log_prob"]
    assert metrics == pytest.approx(expected, abs=1e-6)


def test_the_order_of_packs_changes_nothing():
    one, other = learner(), learner()
    one.update(batch(mini_batch(GROUP, OTHER)))
    other.update(batch(mini_batch(OTHER, GROUP)))
    assert largest_difference(weights(one), weights(other)) < 1e-6


def test_a_flat_group_is_not_computed_but_weighs_in_the_normaliser(monkeypatch: pytest.MonkeyPatch):
    nodes = []
    monkeypatch.setattr(
        policy,
        "tree_logprobs",
        lambda model, one: nodes.append(one.num_nodes) or tree_logprobs(model, one),
    )
    alone, beside = learner(max_grad_norm=1e9), learner(max_grad_norm=1e9)
    norm_alone = alone.update(batch(mini_batch(GROUP)))["actor/grad_norm"]
    norm_beside = beside.update(batch(mini_batch(GROUP, FLAT)))["actor/grad_norm"]
    assert nodes[0] == nodes[1]
    assert norm_beside == pytest.approx(norm_alone / 2, rel=1e-9)


def test_a_rollout_of_two_sequences_weighs_what_a_rollout_of_one_does():
    """The same two sequences as one rollout of two, or as two rollouts of which each counts half."""
    parts = [([3, 4], [5, 6, 7]), ([3, 4, 8], [9, 10, 11])]
    whole = sequence([3, 4], [20, 21], advantage=-1.0, rollout_id="b")
    split = pack([*(sequence(*part, weight=0.5, rollout_id="a") for part in parts), whole])
    ours = learner(max_grad_norm=1e9)
    ours.update(batch(mini_batch(split)))
    plain = tiny_llama().double()
    loss = 0.0
    for item in split.sequences:
        sampled = torch.tensor(item.loss_mask)[1:]
        taken = torch.log_softmax(plain(input_ids=torch.tensor([item.token_ids])).logits[0, :-1], -1)
        taken = taken.gather(1, torch.tensor(item.token_ids)[1:, None])[sampled, 0]
        loss = loss - item.advantage * item.weight * taken.mean() / 2
    loss.backward()
    for name, weight in ours.weights().named_parameters():
        torch.testing.assert_close(weight.grad, plain.get_parameter(name).grad, rtol=0, atol=1e-6)


def test_updates_raise_what_was_rewarded_and_lower_what_was_not():
    ours = learner()
    before, mask = logprobs(ours, GROUP)
    for step in range(1, 4):
        ours.update(batch(mini_batch(GROUP), step=step))
    after, _ = logprobs(ours, GROUP)
    change = ((after - before) * mask).sum(-1)
    assert change[0] > 0
    assert change[2] < 0


def test_a_batch_without_mini_batches_changes_nothing_and_reports_no_number():
    ours = learner()
    before = weights(ours)
    metrics = ours.update(batch(step=3))
    assert largest_difference(before, weights(ours)) == 0
    assert metrics["actor/num_updates"] == metrics["actor/skipped_updates"] == 0
    assert ours.policy_version == 0
    for name in ("actor/loss", "actor/entropy", "actor/grad_norm", "mismatch/logprob_diff_mean"):
        assert math.isnan(metrics[name])
    assert metrics["actor/lr"] == 1e-3


def test_the_learning_rate_follows_the_steps_of_the_run_and_not_the_updates():
    ours = learner(lr_scheduler_type="linear", lr_warmup_steps=0)
    assert ours.update(batch(mini_batch(GROUP), step=1))["actor/lr"] == pytest.approx(1e-3)
    assert ours.update(batch(mini_batch(GROUP), step=6))["actor/lr"] == pytest.approx(5e-4)


def test_scores_are_the_logprobs_of_now_and_of_the_reference_in_the_order_of_the_packs():
    ours = learner(reference_kl=True)
    ours.update(batch(mini_batch(GROUP)))
    empty = sequence([1, 2, 3], [], rollout_id="empty")
    packs = [pack([*GROUP.sequences, empty]), OTHER]
    scores = ours.scores(batch(mini_batch(*packs)))
    assert len(scores) == 7
    now, mask = logprobs(ours, GROUP)
    for index in range(3):
        assert scores[index].old_logprobs == pytest.approx(now[index][mask[index]].tolist(), abs=1e-9)
    assert scores[3].old_logprobs == ()
    start, mask = logprobs(learner(), OTHER)
    for index in range(3):
        found = scores[4 + index].reference_logprobs
        assert found == pytest.approx(start[index][mask[index]].tolist(), abs=1e-9)


def test_advantages_by_token_reach_their_tokens():
    ours, plain = learner(algorithm="dapo"), learner(algorithm="dapo")
    given = [0.5, -1.0, 2.0]
    by_token = replace(GROUP.sequences[0], token_advantages=tuple(given), advantage=0.0)
    metrics = ours.update(batch(mini_batch(pack([by_token]))))
    assert metrics["actor/pg_loss"] == pytest.approx(-sum(given) / 3)
    same = replace(by_token, token_advantages=(), advantage=0.5)
    assert plain.update(batch(mini_batch(pack([same]))))["actor/pg_loss"] == pytest.approx(-0.5)


@pytest.mark.parametrize("algorithm", algorithm_names())
@pytest.mark.parametrize("lora", [{}, {"lora_rank": 4}], ids=["full", "lora"])
def test_every_algorithm_raises_what_was_rewarded(algorithm: str, lora: dict):
    ours = learner(algorithm=algorithm, **lora)
    before, mask = logprobs(ours, GROUP)
    for step in range(1, 4):
        ours.update(batch(mini_batch(GROUP), mini_batch(GROUP), step=step))
    after, _ = logprobs(ours, GROUP)
    change = ((after - before) * mask).sum(-1)
    assert change[0] > 0 > change[2]


def test_a_gradient_that_is_not_finite_skips_the_update_and_is_counted():
    ours = learner()
    with torch.no_grad():
        ours.weights().get_parameter("model.norm.weight")[0] = math.inf
    before = weights(ours)
    metrics = ours.update(batch(mini_batch(GROUP)))
    assert metrics["actor/skipped_updates"] == 1
    assert metrics["actor/num_updates"] == 0
    assert ours.policy_version == 0
    after = weights(ours)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_gradient_is_clipped_to_its_norm_and_reported_before():
    ours = learner(max_grad_norm=0.01)
    norm = ours.update(batch(mini_batch(GROUP)))["actor/grad_norm"]
    assert norm > 0.01
    clipped = torch.stack([weight.grad.norm() for weight in ours.weights().parameters()]).norm()
    assert clipped.item() == pytest.approx(0.01, rel=1e-6)


def test_frozen_embeddings_stay_and_the_rest_moves():
    ours = learner(freeze_embeddings=True)
    before = weights(ours)
    ours.update(batch(mini_batch(GROUP)))
    after = weights(ours)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert set(before) - moved == {"model.embed_tokens.weight"}


def test_weight_decay_shrinks_matrices_and_leaves_norms():
    plain, decayed = learner(), learner(weight_decay=0.5)
    plain.update(batch(mini_batch(GROUP)))
    decayed.update(batch(mini_batch(GROUP)))
    left, right, start = weights(plain), weights(decayed), weights(learner())
    name = "model.layers.0.mlp.up_proj.weight"
    torch.testing.assert_close(left[name] - right[name], 1e-3 * 0.5 * start[name], rtol=1e-6, atol=1e-12)
    assert torch.equal(left["model.norm.weight"], right["model.norm.weight"])


def test_every_reported_metric_is_declared():
    from strop.tracing.metrics import all_metrics

    ours = learner(kl_loss_coef=0.1, entropy_coeff=0.1, rollout_is="token", rollout_rs="token")
    reported = ours.update(batch(mini_batch(GROUP), mini_batch(OTHER)))
    assert set(reported) <= {metric.name for metric in all_metrics()}


def test_gradients_of_the_parts_of_an_update_add_up_until_a_step_uses_them():
    whole, parts = learner(max_grad_norm=1e9), learner(max_grad_norm=1e9)
    normalizer = LossNormalizer(num_tokens=26, num_rollouts=6)
    whole.forward_backward([GROUP, OTHER], normalizer)
    for one in (GROUP, OTHER):
        parts.forward_backward([one], normalizer)
    steps = [one.optim_step(1e-3, max_grad_norm=1e9) for one in (whole, parts)]
    assert steps[0].applied
    assert steps[1].grad_norm == pytest.approx(steps[0].grad_norm, rel=1e-9)
    assert largest_difference(weights(whole), weights(parts)) < 1e-9
    # What is summed next begins at 0.
    whole.forward_backward([OTHER], normalizer)
    first = whole.optim_step(0.0, max_grad_norm=1e9).grad_norm
    whole.forward_backward([OTHER], normalizer)
    assert whole.optim_step(0.0, max_grad_norm=1e9).grad_norm == pytest.approx(first, rel=1e-9)
