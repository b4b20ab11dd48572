"""SFT, CPT and DPO on a tiny model: the loss of the formula, whatever the micro-batches; and it goes down."""

import math
from pathlib import Path

import pytest
import torch

from fakes.learning import OfflineLearner
from fakes.model import tiny_llama
from fakes.offline import example, packed
from fakes.packs import batch, mini_batch
from fakes.tokenizer import tiny_tokenizer
from strop.config.job import HyperParameters
from strop.learners.local import rows as row_trainer

SFT = (
    example("a", [5, 6, 7], [20, 21, 22, 23]),
    example("b", [5, 6], [30, 31, 32], [40, 41], weights=[1.0, 0.25]),
    example("c", [9], [50, 51, 52, 53, 54], weights=[0.5]),
)
DPO = (
    example("a", [5, 6, 7], [20, 21, 22], [30, 31], weights=[0, 0], pairs=((0, 1),)),
    example("b", [5, 6], [30, 31], [40, 41, 42, 43], [50], weights=[1, 0, 0], pairs=((0, 1), (0, 2), (1, 2))),
)


def settings(**changes) -> HyperParameters:
    values = {"learning_rate": 1e-2, "lr_scheduler_type": "constant", "lr_warmup_steps": 0}
    return HyperParameters.model_validate({**values, "train_dtype": "float32", **changes})


def learner(dtype: torch.dtype = torch.float64, **changes) -> OfflineLearner:
    model = tiny_llama().to(dtype)
    return OfflineLearner(model, tiny_tokenizer(), settings(**changes), total_steps=50, dtype=dtype)


def step(*examples, number: int = 1):
    return batch(mini_batch(*packed(*examples)), step=number)


def taken_logprobs(model, one) -> list[torch.Tensor]:
    """Per sequence, the logprobs of its taught tokens by a plain forward pass of transformers."""
    rows = []
    for item in one.sequences:
        logits = model(input_ids=torch.tensor([item.token_ids])).logits[0, :-1]
        picked = torch.log_softmax(logits, -1).gather(1, torch.tensor(item.token_ids)[1:, None])[:, 0]
        rows.append(picked[torch.tensor(item.loss_mask)[1:]])
    return rows


def weights(of: OfflineLearner) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in of.weights().named_parameters()}


def test_sft_minimises_the_weighted_mean_over_all_taught_tokens() -> None:
    ours, plain = learner(max_grad_norm=1e9), tiny_llama().double()
    total, weight = torch.zeros(()), 0.0
    for one in SFT:
        for item, row in zip(one.sequences, taken_logprobs(plain, one), strict=True):
            total, weight = total - item.weight * row.sum(), weight + item.weight * len(row)
    assert weight == 4 + 3 + 0.25 * 2 + 0.5 * 5
    (total / weight).backward()
    metrics = ours.update(step(*SFT))
    assert metrics["lm/loss"] == pytest.approx(total.item() / weight, abs=1e-6)
    assert metrics["actor/loss"] == metrics["lm/loss"]
    assert metrics["lm/perplexity"] == pytest.approx(math.exp(total.item() / weight), rel=1e-6)
    norm = torch.stack([one.grad.norm() for one in plain.parameters()]).norm()
    assert metrics["actor/grad_norm"] == pytest.approx(norm.item(), rel=1e-6)
    for name, one in ours.weights().named_parameters():
        torch.testing.assert_close(one.grad, plain.get_parameter(name).grad, rtol=0, atol=1e-6)


def plain_dpo(plain, reference, beta: float = 0.1) -> torch.Tensor:
    losses = []
    for one in DPO:
        now = [row.sum() for row in taken_logprobs(plain, one)]
        with torch.no_grad():
            then = [row.sum() for row in taken_logprobs(reference, one)]
        for better, worse in one.pairs:
            h = (now[better] - then[better]) - (now[worse] - then[worse])
            losses.append(-torch.nn.functional.logsigmoid(beta * h))
    return torch.stack(losses).mean()


def test_dpo_adds_the_mean_over_pairs_and_the_imitation_of_marked_answers() -> None:
    ours = learner(max_grad_norm=1e9, learning_rate=1e-3)
    ours.remember_reference(packed(*DPO))
    first = ours.update(step(*DPO))
    assert first["dpo/loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert first["dpo/rewards/margin"] == pytest.approx(0, abs=1e-6)
    reference, plain = tiny_llama().double(), tiny_llama().double()
    plain.load_state_dict(ours.weights().state_dict())
    second = ours.update(step(*DPO, number=2))
    pairs = plain_dpo(plain, reference)
    imitation = -taken_logprobs(plain, DPO[1])[0].mean()
    (pairs + imitation).backward()
    assert second["dpo/loss"] == pytest.approx(pairs.item(), abs=1e-6)
    assert second["lm/loss"] == pytest.approx(imitation.item(), abs=1e-6)
    assert second["actor/loss"] == pytest.approx((pairs + imitation).item(), abs=1e-6)
    assert second["dpo/rewards/margin"] > 0
    for name, one in ours.weights().named_parameters():
        torch.testing.assert_close(one.grad, plain.get_parameter(name).grad, rtol=0, atol=1e-6)


@pytest.mark.parametrize("max_nodes", [4, 768])
def test_a_row_that_teaches_and_compares_nothing_stands_beside_pairs(
    max_nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates of one score, of which one is to be imitated."""
    monkeypatch.setattr(row_trainer, "MAX_NODES", max_nodes)
    alone = example("c", [9], [50, 51, 52], [60], weights=[0.5, 0])
    ours = learner()
    ours.remember_reference(packed(*DPO, alone))
    pairs, taught, both = (ours.measure(packed(*rows)) for rows in (DPO, (alone,), (*DPO, alone)))
    assert "dpo/loss" not in taught
    assert both["dpo/loss"] == pytest.approx(pairs["dpo/loss"], abs=1e-12)
    # DPO's one marked answer has 2 tokens of weight 1, the other row's 3 of weight 0.5.
    expected = (2 * pairs["lm/loss"] + 1.5 * taught["lm/loss"]) / 3.5
    assert both["lm/loss"] == pytest.approx(expected, abs=1e-12)
    assert ours.update(step(*DPO, alone))["actor/num_updates"] == 1


def test_rows_of_two_files_that_share_an_id_have_references_of_their_own() -> None:
    ours = learner()
    twin = example("a", [5, 6, 7], [90, 91, 92, 93], [30, 95], weights=[0, 0], pairs=((0, 1),))
    ours.remember_reference(packed(DPO[0], twin))
    for one in (DPO[0], twin):
        assert ours.measure(packed(one))["dpo/rewards/margin"] == pytest.approx(0, abs=1e-9)


def test_ipo_compares_means_over_tokens() -> None:
    ours = learner(dpo_loss="ipo", dpo_beta=0.5, learning_rate=1e-3)
    ours.remember_reference(packed(*DPO))
    assert ours.update(step(*DPO))["dpo/loss"] == pytest.approx(1.0, abs=1e-6)  # (0 - 1 / (2 * 0.5))^2
    reference, plain = tiny_llama().double(), tiny_llama().double()
    plain.load_state_dict(ours.weights().state_dict())
    expected = []
    with torch.no_grad():
        for one in DPO:
            change = [
                (now.mean() - then.mean()).item()
                for now, then in zip(taken_logprobs(plain, one), taken_logprobs(reference, one), strict=True)
            ]
            expected += [(change[better] - change[worse] - 1.0) ** 2 for better, worse in one.pairs]
    found = ours.measure(packed(*DPO))["dpo/loss"]
    assert found == pytest.approx(sum(expected) / len(expected), abs=1e-6)


@pytest.mark.parametrize("rows", [SFT, DPO], ids=["sft", "dpo"])
@pytest.mark.parametrize("lora", [{}, {"lora_rank": 2}], ids=["full", "lora"])
def test_neither_micro_batches_nor_the_order_of_rows_change_anything(
    rows, lora, monkeypatch: pytest.MonkeyPatch
) -> None:
    def two_steps(*ordered):
        ours = learner(**lora)
        ours.remember_reference(packed(*rows))
        ours.update(step(*ordered))
        return ours, ours.update(step(*ordered, number=2))

    whole, expected = two_steps(*rows)
    monkeypatch.setattr(row_trainer, "MAX_NODES", 4)
    cut, found = two_steps(*reversed(rows))
    assert found == pytest.approx(expected, abs=1e-6)
    for name, value in weights(whole).items():
        torch.testing.assert_close(value, weights(cut)[name], rtol=0, atol=1e-6)


def test_a_measurement_is_the_loss_and_changes_nothing() -> None:
    ours = learner()
    before, measured = weights(ours), ours.measure(packed(*SFT))
    assert all(torch.equal(value, before[name]) for name, value in weights(ours).items())
    assert measured["actor/loss"] == pytest.approx(ours.update(step(*SFT))["actor/loss"], abs=1e-9)


@pytest.mark.parametrize(
    ("lora", "rate", "reached"),
    [
        ({}, 5e-3, 1.8),
        # Embeddings of norm 0.16 and final states of norm 8 bound logits by 1.3, and adapters change neither.
        ({"lora_rank": 4}, 2e-2, 5.3),
        ({"lora_rank": 4, "lora_dropout": 0.2}, 2e-2, 5.3),
    ],
)
def test_sft_learns_a_form_that_held_out_rows_share(lora: dict, rate: float, reached: float) -> None:
    """Whatever is asked, the answer is the same: rows that ask otherwise tell whether that was learned."""
    rows = [example(f"r{n}", [3, n], [7, 8, 9, 2]) for n in range(20, 52)]
    held_out, taught = packed(*rows[::8]), [row for index, row in enumerate(rows) if index % 8]
    ours = learner(torch.float32, learning_rate=rate, **lora)
    torch.manual_seed(0)
    before = ours.measure(held_out)["actor/loss"]
    for number in range(1, 16):
        ours.update(step(*taught, number=number))
    after = ours.measure(held_out)["actor/loss"]
    assert before == pytest.approx(5.97, abs=0.1)  # ln 391: the vocabulary
    assert after < reached


def test_dpo_learns_to_prefer_on_held_out_rows() -> None:
    rows = [
        example(f"r{n}", [3, n], [7, n, 2], [8, n, 2], weights=[0, 0], pairs=((0, 1),)) for n in range(20, 52)
    ]
    held_out, taught = packed(*rows[::4]), [row for index, row in enumerate(rows) if index % 4]
    ours = learner(torch.float32, learning_rate=1e-3)
    ours.remember_reference([*packed(*taught), *held_out])
    before = ours.measure(held_out)
    for number in range(1, 16):
        ours.update(step(*taught, number=number))
    after = ours.measure(held_out)
    assert before["dpo/loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert after["dpo/loss"] < 0.6
    assert after["dpo/rewards/accuracy"] == 1.0
    assert after["dpo/rewards/margin"] > 0.2


@pytest.mark.parametrize("lora", [{}, {"lora_rank": 2, "lora_dropout": 0.3}], ids=["full", "dropout"])
def test_a_resumed_run_is_bitwise_the_uninterrupted_one(lora: dict, tmp_path: Path) -> None:
    def fresh() -> OfflineLearner:
        ours = learner(torch.float32, **lora)
        ours.remember_reference(packed(*DPO))
        return ours

    torch.manual_seed(5)
    straight = fresh()
    metrics = [straight.update(step(*DPO, number=number)) for number in (1, 2, 3)]
    torch.manual_seed(5)
    first = fresh()
    first.update(step(*DPO))
    first.save(tmp_path)
    torch.manual_seed(99)
    resumed = fresh()
    resumed.load(tmp_path)
    assert [resumed.update(step(*DPO, number=number)) for number in (2, 3)] == metrics[1:]
    for name, value in weights(straight).items():
        assert torch.equal(value, weights(resumed)[name])


def test_a_gradient_that_is_not_finite_changes_nothing_and_is_counted() -> None:
    ours = learner()
    before = weights(ours)
    ours.remember_reference(packed(*DPO))
    first = DPO[0].sequences[0]
    ours._remembered[first.token_ids, first.loss_mask] = torch.tensor(math.nan)
    metrics = ours.update(step(*DPO))
    assert (metrics["actor/num_updates"], metrics["actor/skipped_updates"]) == (0, 1)
    assert all(torch.equal(value, before[name]) for name, value in weights(ours).items())
