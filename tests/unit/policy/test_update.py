"""One step of the learner, on a tiny model: what it computes, what it steps, what it reports."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fakes.model import tiny_llama
from fakes.packs import batch, mini_batch, random_pack, sequence
from fakes.tokenizer import tiny_tokenizer
from strop.errors import CheckpointError, ModelError
from strop.pipeline.batch import pack
from strop.policy import update
from strop.policy.checkpoint import Checkpoints
from strop.policy.forest import make_forests
from strop.policy.forward import forest_logprobs
from strop.policy.update import Learner
from strop.schema.config import HyperParameters

GROUP = random_pack(0)
OTHER = random_pack(1)
FLAT = random_pack(2, advantages=(0.0, 0.0, 0.0))


def settings(**changes) -> HyperParameters:
    values = {"learning_rate": 1e-3, "lr_scheduler_type": "constant", "train_dtype": "float32", **changes}
    # A KL term needs the reference; the curve alone costs a pass, which most of these tests do not count.
    values.setdefault("reference_kl", "kl_loss_coef" in changes)
    return HyperParameters.model_validate(values)


def learner(dtype: torch.dtype = torch.float64, **changes) -> Learner:
    model = tiny_llama().to(dtype)
    return Learner(model, tiny_tokenizer(), settings(**changes), total_steps=10, dtype=dtype)


def weights(of: Learner) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in of.weights().named_parameters()}


def largest_difference(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    return max(float((left[name].double() - right[name].double()).abs().max().detach()) for name in left)


def logprobs(of: Learner, packed) -> tuple[torch.Tensor, torch.Tensor]:
    """(S, T) logprobs and mask under the weights of now."""
    [forest] = make_forests([packed], max_nodes=10_000)
    with torch.no_grad():
        return forest_logprobs(of.weights(), forest)[0][forest.sequence_edges_ST], forest.mask_ST


def with_behaviour(of: Learner, packed, change: float = 0.0):
    """The same group, its behaviour logprobs those of the learner, the first one lowered by `change`."""
    rows, mask = logprobs(of, packed)
    made = []
    for index, item in enumerate(packed.sequences):
        own = rows[index][mask[index]].tolist()
        own[0] -= change if index == 0 else 0.0
        prompt = len(item.token_ids) - item.num_loss_tokens
        made.append(
            sequence(
                item.token_ids[:prompt],
                item.token_ids[prompt:],
                advantage=item.advantage,
                temperature=0.7,
                behaviour=own,
                rollout_id=item.rollout_id,
            )
        )
    return pack(made)


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
    monkeypatch.setattr(update, "forest_logprobs", lambda *given: passes.append(1) or forest_logprobs(*given))
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
    monkeypatch.setattr(update, "MAX_NODES", max_nodes)
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
        update,
        "forest_logprobs",
        lambda model, one: nodes.append(one.num_nodes) or forest_logprobs(model, one),
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


def test_entropy_is_that_of_the_sampling_temperature_at_the_start_of_the_step():
    ours = learner()
    [forest] = make_forests([GROUP], max_nodes=1000)
    with torch.no_grad():
        _, entropies_E = forest_logprobs(ours.weights(), forest)
    expected = entropies_E[forest.sequence_edges_ST][forest.mask_ST].mean().item()
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


def test_scores_are_the_logprobs_of_now_and_of_the_reference_in_the_order_of_the_packs():
    ours = learner(reference_kl=True)
    ours.update(batch(mini_batch(GROUP)))
    empty = sequence([1, 2, 3], [], rollout_id="empty")
    packs = [pack([*GROUP.sequences, empty]), OTHER]
    scores = ours.score(batch(mini_batch(*packs)))
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


@pytest.mark.parametrize(
    "algorithm",
    ["gspo", "grpo", "dr_grpo", "dapo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "cispo", "sapo"],
)
def test_every_algorithm_raises_what_was_rewarded(algorithm: str):
    ours = learner(algorithm=algorithm)
    before, mask = logprobs(ours, GROUP)
    for step in range(1, 4):
        ours.update(batch(mini_batch(GROUP), mini_batch(GROUP), step=step))
    after, _ = logprobs(ours, GROUP)
    change = ((after - before) * mask).sum(-1)
    assert change[0] > 0 > change[2]


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


def test_bfloat16_keeps_updates_that_its_working_weights_would_round_away(tmp_path: Path):
    ours = Learner(tiny_llama(), None, settings(learning_rate=1e-6), total_steps=10, dtype=torch.bfloat16)
    start = dict(tiny_llama().named_parameters())
    name = "model.layers.0.mlp.up_proj.weight"
    working = ours.weights().get_parameter(name)
    assert working.dtype == torch.bfloat16
    ours.update(batch(mini_batch(GROUP)))
    ours.save(tmp_path / "saved")
    from safetensors.torch import load_file

    saved = load_file(tmp_path / "saved" / "model.safetensors")[name]
    assert saved.dtype == torch.float32
    step = (saved - start[name]).abs()
    assert 0 < step.max() <= 1.01e-6  # the first step of Adam moves each weight by at most the rate
    assert torch.equal(ours.weights().get_parameter(name), saved.to(torch.bfloat16))


def test_bfloat16_gradients_agree_with_float32():
    exact = learner(torch.float32)
    rough = Learner(tiny_llama(), None, settings(), total_steps=10, dtype=torch.bfloat16)
    norm = exact.update(batch(mini_batch(GROUP, OTHER)))["actor/grad_norm"]
    assert rough.update(batch(mini_batch(GROUP, OTHER)))["actor/grad_norm"] == pytest.approx(norm, rel=0.05)


STEPS = [
    batch(mini_batch(random_pack(2 * step)), mini_batch(random_pack(2 * step + 1)), step=step)
    for step in range(1, 7)
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "changes", [{}, {"freeze_embeddings": True}, {"kl_loss_coef": 0.1, "entropy_coeff": 0.1}]
)
def test_three_steps_saved_loaded_and_three_more_equal_six_bitwise(
    dtype: torch.dtype, changes: dict, tmp_path: Path
):
    def fresh() -> Learner:
        return Learner(
            tiny_llama(),
            tiny_tokenizer(),
            settings(lr_scheduler_type="cosine", **changes),
            total_steps=6,
            dtype=dtype,
        )

    straight = fresh()
    expected = [straight.update(one) for one in STEPS]
    first = fresh()
    for one in STEPS[:3]:
        first.update(one)
    Checkpoints(first).write(
        tmp_path / "step-3", step=3, policy_version=first.policy_version, position={"row": 24}
    )
    resumed = fresh()
    assert Checkpoints(resumed).load(tmp_path / "step-3") == {"row": 24}
    assert resumed.policy_version == 6
    metrics = [resumed.update(one) for one in STEPS[3:]]
    for found, wanted in zip(metrics, expected[3:], strict=True):
        del found["timing/s/old_log_prob"], wanted["timing/s/old_log_prob"]
        assert found == wanted
    left, right = weights(straight), weights(resumed)
    assert all(torch.equal(left[name], right[name]) for name in left)
    straight.save(tmp_path / "a")
    resumed.save(tmp_path / "b")
    for file in sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.safetensors")):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


@pytest.mark.parametrize(
    ("dtype", "came_in"),
    [(torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)],
)
def test_a_saved_folder_loads_as_a_plain_model_with_the_learner_s_logits(
    dtype: torch.dtype, came_in: torch.dtype, tmp_path: Path
):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ours = Learner(tiny_llama().to(came_in), tiny_tokenizer(), settings(), total_steps=10, dtype=dtype)
    ours.update(batch(mini_batch(GROUP)))
    ours.save(tmp_path / "saved")
    ids = torch.tensor([[5, 6, 7, 8]])
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert loaded.dtype == came_in
    expected = ours.weights()(input_ids=ids).logits
    found = loaded.to(dtype)(input_ids=ids).logits
    # Saving as bfloat16 rounds weights that train in float32; everything else comes back bit by bit.
    tolerance = 0.02 if dtype == torch.float32 and came_in == torch.bfloat16 else 0
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == tiny_tokenizer().apply_chat_template(
        messages, tokenize=False
    )


def test_an_exported_folder_has_no_trainer_state_and_cannot_be_resumed(tmp_path: Path):
    ours = learner(torch.float32)
    ours.save(tmp_path / "exported", trainer_state=False)
    assert not (tmp_path / "exported" / "trainer").exists()
    with pytest.raises(CheckpointError, match="can be served, but not resumed"):
        ours.load(tmp_path / "exported")


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    Learner(LlamaForCausalLM(config), None, settings(), total_steps=1, dtype=torch.float32).save(
        tmp_path / "other"
    )
    ours = learner(torch.float32)
    before = weights(ours)
    with pytest.raises(CheckpointError, match="another model"):
        ours.load(tmp_path / "other")
    assert largest_difference(before, weights(ours)) == 0


@pytest.mark.parametrize(
    ("asked", "fast", "dtype", "warned"),
    [
        ("auto", True, torch.bfloat16, False),
        ("auto", False, torch.float32, False),
        ("bfloat16", True, torch.bfloat16, False),
        ("bfloat16", False, torch.bfloat16, True),
        ("float32", True, torch.float32, False),
    ],
)
def test_the_asked_dtype_is_used_and_a_slow_one_is_said(
    asked: str, fast: bool, dtype: torch.dtype, warned: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("strop.policy.precision.has_fast_bfloat16", lambda: fast)
    ours = Learner(tiny_llama(), None, settings(train_dtype=asked), total_steps=1)
    assert ours.weights().dtype == dtype
    assert (ours.notice is not None) == warned


def test_a_model_that_cannot_be_packed_is_refused_before_any_work():
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=300, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, sliding_window=16,
    )  # fmt: skip
    with pytest.raises(ModelError, match="full attention"):
        Learner(MistralForCausalLM(config), None, settings(), total_steps=1)


def test_every_reported_metric_is_declared():
    from strop.observability.metrics import all_metrics

    ours = learner(kl_loss_coef=0.1, entropy_coeff=0.1, rollout_is="token", rollout_rs="token")
    reported = ours.update(batch(mini_batch(GROUP), mini_batch(OTHER)))
    assert set(reported) <= {metric.name for metric in all_metrics()}
