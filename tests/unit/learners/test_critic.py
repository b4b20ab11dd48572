"""The value model: what it computes, what it learns, what it saves."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import torch

from fakes.families import tiny_model
from fakes.learning import Critic
from fakes.model import tiny_llama
from fakes.packs import batch, mini_batch, random_pack, sequence
from strop.config.job import HyperParameters
from strop.errors import CheckpointError
from strop.learners.local import critic as critic_module
from strop.rl.batch import pack
from strop.rl.gae import gae_metrics, with_gae
from strop.schema.batch import Batch, Pack
from strop.tracing.metrics import check_names

RATE = 1e-3


def rewarded(packed: Pack, *rewards: float) -> Pack:
    pairs = zip(packed.sequences, rewards, strict=True)
    return replace(packed, sequences=tuple(replace(one, reward=reward) for one, reward in pairs))


GROUP = rewarded(random_pack(0), 1.0, 0.0, 0.5)
OTHER = rewarded(random_pack(1), 0.0, 1.0, 1.0)


def settings(**changes) -> HyperParameters:
    values = {"algorithm": "ppo", "critic_learning_rate": RATE, "lr_scheduler_type": "constant"}
    return HyperParameters.model_validate(
        {**values, "train_dtype": "float32", "lr_warmup_steps": 0, **changes}
    )


def critic(dtype: torch.dtype = torch.float64, model=None, **changes) -> Critic:
    """With a head that is not 0, so that the backbone has a gradient and values differ."""
    made = Critic((model or tiny_llama()).to(dtype), settings(**changes), total_steps=10, dtype=dtype)
    torch.manual_seed(5)
    with torch.no_grad():
        made.network().head.weight.normal_(0, 0.1)
        made.network().head.bias.fill_(0.25)
    return made


def judged(by: Critic, *packs: Pack, step: int = 1, gamma: float = 1.0, lam: float = 1.0) -> Batch:
    made = batch(*(mini_batch(packed) for packed in packs), step=step)
    return with_gae(made, by.values(made), gamma=gamma, lam=lam)


def weights(of: Critic) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in of.network().named_parameters()}


def largest_difference(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    return max(float((left[name] - right[name]).abs().max()) for name in left)


def plain_values(of: Critic, packed: Pack) -> list[list[torch.Tensor]]:
    """Each sequence by itself through transformers' own forward pass."""
    found = []
    for one in packed.sequences:
        hidden = of.network().decoder(input_ids=torch.tensor([one.token_ids]), use_cache=False)
        values = of.network().head(hidden.last_hidden_state)[0, :, 0]
        found.append([values[at - 1] for at, sampled in enumerate(one.loss_mask) if sampled])
    return found


def test_every_value_is_zero_before_anything_is_learned():
    fresh = Critic(tiny_llama(), settings(), total_steps=10)
    found = fresh.values(batch(mini_batch(GROUP), mini_batch(OTHER)))
    assert [len(row) for row in found] == [3, 6, 4, 3, 6, 4]
    assert all(value == 0 for row in found for value in row)


@pytest.mark.parametrize("name", ["llama", "qwen2", "mistral", "qwen3", "gpt2", "gpt_neox"])
def test_values_of_trees_are_those_of_each_sequence_alone(name: str):
    ours = critic(model=tiny_model(name))
    found = ours.values(batch(mini_batch(GROUP), mini_batch(OTHER)))
    expected = [*plain_values(ours, GROUP), *plain_values(ours, OTHER)]
    for row, plain in zip(found, expected, strict=True):
        assert row == pytest.approx([value.item() for value in plain], abs=1e-6)
    assert len({value for row in found for value in row}) > 10


def test_a_context_that_rollouts_share_has_one_value():
    packed = pack([sequence([1, 2], [3, 4, 5]), sequence([1, 2], [3, 4, 6]), sequence([1, 2], [7])])
    first, second, third = critic().values(batch(mini_batch(packed)))
    assert first == second  # they part at the last token, which no value has seen
    assert third[0] == first[0]


def test_sequences_without_a_sampled_token_have_no_value():
    packed = pack([sequence([1, 2, 3], []), sequence([1, 2], [3])])
    assert [len(row) for row in critic().values(batch(mini_batch(packed)))] == [0, 1]


def test_observations_have_no_value_and_the_answer_after_them_has():
    one = replace(
        sequence([1, 2], [3, 4, 5, 6]), loss_mask=(False, False, True, False, False, True), reward=1.0
    )
    ours = critic()
    [row] = ours.values(batch(mini_batch(pack([one]))))
    [plain] = plain_values(ours, pack([one]))
    assert row == pytest.approx([value.item() for value in plain])
    assert len(row) == 2


def test_the_gradient_is_that_of_the_formula():
    ours, reference = critic(max_grad_norm=1e9), critic()
    made = judged(ours, GROUP, gamma=0.9, lam=0.8)
    returns = [one.returns for one in made.mini_batches[0].packs[0].sequences]
    errors = [
        (value - target) ** 2
        for row, targets in zip(plain_values(reference, GROUP), returns, strict=True)
        for value, target in zip(row, targets, strict=True)
    ]
    expected = torch.stack(errors).mean() / 2
    expected.backward()
    metrics = ours.update(made)
    assert metrics["critic/vf_loss"] == pytest.approx(expected.item(), abs=1e-6)
    plain = dict(reference.network().named_parameters())
    for name, weight in ours.network().named_parameters():
        torch.testing.assert_close(weight.grad, plain[name].grad, rtol=0, atol=1e-6)
    norm = torch.stack([weight.grad.norm() for weight in plain.values()]).norm()
    assert metrics["critic/grad_norm"] == pytest.approx(norm.item(), rel=1e-5)


@pytest.mark.parametrize("max_nodes", [8, 20])
def test_micro_batches_change_neither_weights_nor_metrics(max_nodes: int, monkeypatch: pytest.MonkeyPatch):
    whole, cut = critic(cliprange_value=1e-4), critic(cliprange_value=1e-4)
    packs = (GROUP, OTHER, random_pack(3))
    both = [batch(mini_batch(*packs), mini_batch(OTHER)) for _ in range(2)]
    expected_values = whole.values(both[0])
    made = with_gae(both[0], expected_values, gamma=0.9, lam=0.9)
    expected = whole.update(made)
    monkeypatch.setattr(critic_module, "MAX_NODES", max_nodes)
    for row, other in zip(cut.values(both[1]), expected_values, strict=True):
        assert row == pytest.approx(other, abs=1e-9)
    assert cut.update(made) == pytest.approx(expected, abs=1e-6)
    assert expected["critic/vf_clipfrac"] > 0
    assert largest_difference(weights(whole), weights(cut)) < 1e-6


def test_the_order_of_packs_and_of_their_sequences_changes_nothing():
    one, other = critic(), critic()
    made = judged(one, GROUP, OTHER)
    sequences = [item for mini in made.mini_batches for packed in mini.packs for item in packed.sequences]
    one.update(batch(mini_batch(pack(sequences[:3]), pack(sequences[3:]))))
    other.update(batch(mini_batch(pack(sequences[:2:-1]), pack(sequences[2::-1]))))
    assert largest_difference(weights(one), weights(other)) < 1e-6


def test_it_learns_the_returns():
    ours = Critic(tiny_llama(), settings(cliprange_value=0, critic_learning_rate=3e-3), total_steps=100)
    losses = []
    for step in range(1, 26):
        losses.append(ours.update(judged(ours, GROUP, step=step))["critic/vf_loss"])
    # Mean squared rewards over tokens: (3 x 1 + 6 x 0 + 4 x 0.25) / 13 / 2.
    assert losses[0] == pytest.approx(4 / 26, rel=1e-5)
    # Where contexts are shared the mean is the best there is: of 1, 0, 0.5 after the prompt, of 1 and 0 after
    # each of two tokens more. What is left is 3 x 0.5 of squared distance.
    assert losses[-1] == pytest.approx(1.5 / 26, abs=1e-3)


def told_by_the_prompt(seed: int) -> list[Pack]:
    """Single rollouts whose prompt alone says whether they will be rewarded; answers say nothing."""
    generator = torch.Generator().manual_seed(seed)

    def ids(count: int) -> list[int]:
        return torch.randint(20, 200, (count,), generator=generator).tolist()

    return [
        rewarded(pack([sequence([3, 7 + number % 2, *ids(2)], ids(3), rollout_id=f"r{number}")]), number % 2)
        for number in range(8)
    ]


def test_it_learns_to_tell_prompts_apart_where_they_tell_the_return():
    """Before an update nothing is explained; later most of the variance on prompts never seen is."""
    ours = Critic(tiny_llama(), settings(critic_learning_rate=3e-3), total_steps=100)
    explained = []
    for step in range(1, 41):
        made = batch(mini_batch(*told_by_the_prompt(step)), step=step)
        made = with_gae(made, ours.values(made), gamma=1.0, lam=1.0)
        explained.append(gae_metrics(made)["critic/vf_explained_var"])
        ours.update(made)
    assert explained[0] == pytest.approx(0, abs=1e-4)
    assert median(explained[-9:]) > 0.8, explained


def test_a_value_may_move_from_the_steps_start_by_the_clip_and_is_counted():
    ours = critic(cliprange_value=1e-3, critic_learning_rate=1e-3)
    made = judged(ours, GROUP, OTHER)
    again = batch(made.mini_batches[0], made.mini_batches[0])
    first = critic(cliprange_value=1e-3, critic_learning_rate=1e-3)
    before = first.update(batch(made.mini_batches[0]))
    assert before["critic/vf_clipfrac"] == 0
    moved = first.values(batch(made.mini_batches[0]))
    rows = made.mini_batches[0].packs[0].sequences
    clipped = 0
    for row, one in zip(moved, rows, strict=True):
        for value, old, target in zip(row, one.old_values, one.returns, strict=True):
            near = min(max(value, old - 1e-3), old + 1e-3)
            clipped += (near - target) ** 2 > (value - target) ** 2
    assert clipped > 0
    found = ours.update(again)["critic/vf_clipfrac"]
    assert found == pytest.approx(clipped / 13 / 2)  # a mean over two updates, the first without any


def test_the_mean_prediction_is_over_tokens():
    ours = critic()
    made = judged(ours, GROUP)
    values = [value for row in ours.values(made) for value in row]
    assert ours.update(made)["critic/vpred_mean"] == pytest.approx(sum(values) / 13, abs=1e-6)


def test_the_rate_is_its_own_and_follows_the_schedule():
    ours = critic(lr_scheduler_type="linear", learning_rate=1.0)
    assert ours.update(judged(ours, GROUP))["critic/lr"] == pytest.approx(RATE)
    assert ours.update(judged(ours, GROUP, step=6))["critic/lr"] == pytest.approx(RATE / 2)


def test_the_policy_it_was_copied_from_stays_as_it_was():
    model = tiny_llama().double()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    ours = critic(model=model)
    ours.update(judged(ours, GROUP))
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    moved = [name for name, weight in weights(ours).items() if "decoder" in name]
    assert moved
    for name in moved:
        assert not torch.equal(weights(ours)[name], before[name.replace("decoder.", "model.", 1)])


def test_frozen_embeddings_stay_in_the_critic_too():
    ours = critic(freeze_embeddings=True)
    before = weights(ours)
    ours.update(judged(ours, GROUP))
    after = weights(ours)
    still = {name for name in before if torch.equal(before[name], after[name])}
    assert still == {"decoder.embed_tokens.weight"}


def test_a_gradient_that_is_not_finite_skips_the_update_and_is_counted():
    ours = critic()
    made = judged(ours, GROUP)
    with torch.no_grad():
        ours.network().head.bias.fill_(math.nan)
    before = weights(ours)
    assert ours.update(made)["critic/skipped_updates"] == 1
    assert torch.equal(before["head.weight"], weights(ours)["head.weight"])


def test_bfloat16_keeps_updates_that_its_working_weights_would_round_away():
    ours = Critic(tiny_llama(), settings(critic_learning_rate=1e-6), total_steps=10, dtype=torch.bfloat16)
    with torch.no_grad():
        ours.network().head.weight.fill_(0.25)
    start = tiny_llama().get_parameter("model.layers.0.mlp.up_proj.weight")
    ours.update(judged(ours, GROUP))
    master = ours._optimizer.masters["decoder.layers.0.mlp.up_proj.weight"]
    assert master.dtype == torch.float32
    change = (master - start).abs().max().item()
    assert change == pytest.approx(1e-6, rel=0.1)


def test_a_token_whose_behaviour_logprob_is_no_number_has_a_value_and_a_return_all_the_same():
    packed = pack([replace(sequence([1, 2], [3, 4], behaviour=[math.nan, -1.0]), reward=1.0)])
    plain = pack([replace(sequence([1, 2], [3, 4]), reward=1.0)])
    ours, expected = critic(), critic()
    assert ours.update(judged(ours, packed)) == expected.update(judged(expected, plain))


def test_a_batch_without_returns_is_refused():
    with pytest.raises(ValueError, match="no returns"):
        critic().update(batch(mini_batch(GROUP)))


def test_a_batch_without_mini_batches_reports_no_number():
    metrics = critic().update(batch(step=3))
    assert math.isnan(metrics["critic/vf_loss"])
    assert metrics["critic/skipped_updates"] == 0


def test_what_it_reports_is_declared():
    ours = critic()
    check_names(ours.update(judged(ours, GROUP)))


def test_it_goes_on_bit_by_bit_from_what_it_saved(tmp_path: Path):
    straight = critic(torch.float32)
    for step in (1, 2):
        straight.update(judged(straight, GROUP, OTHER, step=step))
    straight.save(tmp_path)
    resumed = critic(torch.float32)
    resumed.load(tmp_path)
    metrics = [one.update(judged(one, OTHER, GROUP, step=3)) for one in (straight, resumed)]
    assert metrics[0] == metrics[1]
    assert largest_difference(weights(straight), weights(resumed)) == 0


def test_a_checkpoint_without_a_critic_is_refused(tmp_path: Path):
    with pytest.raises(CheckpointError, match="holds no critic"):
        critic().load(tmp_path)


def test_the_critic_of_another_model_is_refused(tmp_path: Path):
    critic(torch.float32, model=tiny_model("gpt2")).save(tmp_path)
    ours = critic(torch.float32)
    before = weights(ours)
    with pytest.raises(CheckpointError, match="of another model"):
        ours.load(tmp_path)
    assert largest_difference(before, weights(ours)) == 0
