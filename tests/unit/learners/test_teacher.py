"""On-policy distillation: what the teacher says of the student's tokens, and that the student moves there."""

import math
from dataclasses import replace

import pytest
import torch

from fakes.families import tiny_model
from fakes.learning import Learner
from fakes.model import tiny_llama
from fakes.packs import batch, mini_batch, random_pack, sequence
from fakes.tokenizer import tiny_tokenizer
from strop.config.job import HyperParameters
from strop.errors import ModelError
from strop.learners.local import policy
from strop.learners.local.objective import distilled
from strop.learners.local.packed_trees import pack_trees
from strop.learners.local.teacher import Teacher
from strop.rl.batch import pack
from strop.rl.update import with_rows
from strop.tracing.metrics import check_names

PROMPT = [5, 6, 7]
GROUP, OTHER = random_pack(0, advantages=(0, 0, 0)), random_pack(1, advantages=(0, 0, 0))


def settings(**changes) -> HyperParameters:
    values = {"algorithm": "grpo", "learning_rate": 1e-3, "lr_scheduler_type": "constant"}
    return HyperParameters.model_validate(
        {
            **values,
            "train_dtype": "float32",
            "lr_warmup_steps": 0,
            "max_length": 256,
            "max_prompt_length": 64,
            **changes,
        }
    )


def teacher(model=None, **changes) -> Teacher:
    model = (model or tiny_model("llama", seed=7)).double()
    given = {"student_tokenizer": tiny_tokenizer(), "dtype": torch.float64, **changes}
    return Teacher(model, tiny_tokenizer(), settings(), **given)


def student(taught_by: Teacher | None, **changes) -> Learner:
    model = tiny_model("llama", seed=1).double()
    return Learner(model, None, settings(**changes), total_steps=200, teacher=taught_by, dtype=torch.float64)


def next_logprobs(model, prompt=PROMPT) -> torch.Tensor:
    """Log-softmax over what may follow the prompt, by transformers alone."""
    return torch.log_softmax(model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1], -1)


def taken_logprobs(model, packed) -> torch.Tensor:
    """Each sequence's sampled tokens at their temperature, one after another, by transformers alone."""
    found = []
    for one in packed.sequences:
        logits = model(input_ids=torch.tensor([one.token_ids]), use_cache=False).logits[0, :-1] / 0.7
        taken = torch.log_softmax(logits, -1).gather(1, torch.tensor(one.token_ids)[1:, None])[:, 0]
        found.append(taken[torch.tensor(one.loss_mask)[1:]])
    return torch.cat(found).detach()


def test_the_advantage_of_a_token_is_teacher_minus_old_logprob():
    judge = teacher()
    [known] = with_rows([GROUP], teacher_logprobs=judge.score([GROUP]).logprobs)
    [trees] = pack_trees([known], max_nodes=1000)
    model = tiny_model("llama", seed=1).double()
    old = taken_logprobs(model, GROUP)
    old_ST = torch.zeros(trees.mask_ST.shape, dtype=torch.float64)
    old_ST[trees.mask_ST] = old
    advantages_ST, metrics = distilled(trees, old_ST, num_tokens=13)
    expected = taken_logprobs(tiny_model("llama", seed=7).double(), GROUP) - old
    torch.testing.assert_close(advantages_ST[trees.mask_ST], expected, rtol=0, atol=1e-6)
    assert metrics == {
        "actor/distillation/loss": pytest.approx(-expected.mean().item(), abs=1e-6),
        "trace/distillation/valid_token_rate": 1.0,
        "trace/distillation/missing_token_rate": 0.0,
    }


def test_the_expected_gradient_is_that_of_the_reverse_kl():
    """Every token that may follow, weighted with its probability, in place of sampling."""
    ours = student(teacher(), max_grad_norm=1e9)
    probabilities = next_logprobs(ours.weights()).exp().tolist()
    every = pack(
        [
            sequence(PROMPT, [token], weight=weight, advantage=0.0, rollout_id=f"r{token}")
            for token, weight in enumerate(probabilities)
        ]
    )
    ours.update(batch(replace(mini_batch(every), num_rollouts=1)))
    plain = tiny_model("llama", seed=1).double()
    policy_V, teacher_V = next_logprobs(plain), next_logprobs(tiny_model("llama", seed=7).double()).detach()
    (policy_V.exp() * (policy_V - teacher_V)).sum().backward()
    for name, weight in ours.weights().named_parameters():
        torch.testing.assert_close(weight.grad, plain.get_parameter(name).grad, rtol=1e-5, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize(
    ("lora", "left"),
    # Adapters leave the output embedding as it is, and most of this tiny model's distance is there.
    [({}, 0.1), ({"lora_rank": 8, "learning_rate": 2e-2}, 0.6)],
    ids=["full", "lora"],
)
def test_a_student_becomes_its_teacher(lora: dict, left: float):
    judge = teacher()
    ours = student(judge, **{"learning_rate": 5e-3, "ppo_mini_batch_size": 1, "batch_size": 1, **lora})
    target = next_logprobs(tiny_model("llama", seed=7).double())
    generator = torch.Generator().manual_seed(0)

    def distance() -> float:
        policy = next_logprobs(ours.weights())
        return float((policy.exp() * (policy - target)).sum())

    before, losses = distance(), []
    for step in range(1, 61):
        logprobs = next_logprobs(ours.weights())
        tokens = torch.multinomial(logprobs.exp(), 64, replacement=True, generator=generator).tolist()
        rows = [
            sequence(
                PROMPT, [token], advantage=0.0, rollout_id=f"{index}", behaviour=[logprobs[token].item()]
            )
            for index, token in enumerate(tokens)
        ]
        with torch.enable_grad():
            losses.append(ours.update(batch(mini_batch(pack(rows)), step=step))["actor/distillation/loss"])
    assert before > 1
    assert losses[0] == pytest.approx(before, rel=0.3)  # an estimate of it from 64 samples
    assert distance() < left * before


def test_neither_flat_advantages_nor_missing_rewards_matter():
    ours = student(teacher())
    metrics = ours.update(batch(mini_batch(GROUP), mini_batch(OTHER)))
    assert metrics["actor/num_updates"] == 2
    assert metrics["trace/distillation/valid_token_rate"] == 1.0
    check_names(metrics)


@pytest.mark.parametrize("max_nodes", [8, 20])
def test_micro_batches_change_neither_weights_nor_metrics(max_nodes: int, monkeypatch: pytest.MonkeyPatch):
    minis = (mini_batch(GROUP, random_pack(3)), mini_batch(OTHER))
    whole, cut = student(teacher(), reference_kl=False), student(teacher(), reference_kl=False)
    expected = whole.update(batch(*minis))
    monkeypatch.setattr(policy, "MAX_NODES", max_nodes)
    metrics = cut.update(batch(*minis))
    del expected["timing/s/old_log_prob"], metrics["timing/s/old_log_prob"]
    assert metrics == pytest.approx(expected, abs=1e-6)
    for one, other in zip(whole.weights().parameters(), cut.weights().parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_the_teacher_stays_as_it_was():
    model = tiny_model("llama", seed=7).double()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    student(teacher(model)).update(batch(mini_batch(GROUP)))
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_without_a_teacher_nothing_is_said_of_one():
    metrics = student(None).update(batch(mini_batch(random_pack(0))))
    assert not [name for name in metrics if "distillation" in name]


def test_tokens_beyond_the_teachers_vocabulary_and_what_follows_them_teach_nothing():
    small = tiny_model("llama", seed=7)
    small.resize_token_embeddings(100, mean_resizing=False)
    judge = teacher(small)
    packed = pack([sequence([5, 6], [7, 150, 8], rollout_id="a"), sequence([5, 6], [9, 10], rollout_id="b")])
    [trees] = pack_trees([packed], max_nodes=100)
    _, known_E = judge.logprobs(trees)
    rows = [known_E[trees.sequence_edges_ST[row]][trees.mask_ST[row]].tolist() for row in range(2)]
    assert rows == [[True, False, False], [True, True]]
    [answered] = with_rows([packed], teacher_logprobs=judge.score([packed]).logprobs)
    [trees] = pack_trees([answered], max_nodes=100)
    advantages_ST, metrics = distilled(trees, torch.full((2, 3), -1.0).double(), num_tokens=5)
    assert advantages_ST[0, 1:].tolist() == [0.0, 0.0]
    assert metrics["trace/distillation/valid_token_rate"] == pytest.approx(0.6)
    assert metrics["trace/distillation/missing_token_rate"] == pytest.approx(0.4)


def test_a_teacher_whose_logprobs_are_no_numbers_is_counted_and_teaches_nothing():
    model = tiny_model("llama", seed=7)
    with torch.no_grad():
        model.get_parameter("model.norm.weight")[0] = math.nan
    judge = teacher(tiny_model("llama", seed=7))
    judge._model = model.double()
    ours = student(judge)
    before = {name: weight.detach().clone() for name, weight in ours.weights().named_parameters()}
    metrics = ours.update(batch(mini_batch(GROUP)))
    assert metrics["trace/distillation/missing_token_rate"] == 1.0
    assert all(torch.equal(weight, before[name]) for name, weight in ours.weights().named_parameters())


def test_another_tokenizer_is_refused():
    class Other:
        def get_vocab(self) -> dict[str, int]:
            swapped = tiny_tokenizer().get_vocab()
            return {token: index if index < 50 else index + 1 for token, index in swapped.items()}

    with pytest.raises(ModelError, match=r"another tokenizer: .* is token 50 to the student and 51 to the"):
        Teacher(tiny_llama(), Other(), settings(), student_tokenizer=tiny_tokenizer())


def test_a_teacher_that_reads_less_than_the_student_may_write_is_refused():
    with pytest.raises(ModelError, match="the teacher reads 256 tokens, max_length is 300"):
        Teacher(
            tiny_model("llama"),
            tiny_tokenizer(),
            settings(max_length=300),
            student_tokenizer=tiny_tokenizer(),
        )
