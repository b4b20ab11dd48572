"""What an update is, over a trainer that only records: the order of calls, and what packs bring."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.packs import batch, mini_batch, sequence
from strop.config.job import HyperParameters
from strop.rl.batch import pack, repeat
from strop.rl.update import PolicyLearner
from strop.schema.batch import ForwardResult, LossNormalizer, OptimStep
from strop.schema.weights import WeightsRef

METRICS = {"actor/loss": 1.0, "actor/ppo_kl": 0.0, "actor/nan_tokens": 0.0, "tokens": 4.0}


class RecordingTrainer:
    """Every logprob is -1, of the reference -1.5."""

    def __init__(self, *, applied: bool = True) -> None:
        self.calls: list[str] = []
        self.packs: list[list] = []
        self.normalizers: list[LossNormalizer] = []
        self.rates: list[float] = []
        self.policy_version = 0
        self._applied = applied

    def score(self, packs) -> ForwardResult:
        self.calls.append("score")
        return self._all(packs, -1.0)

    def score_reference(self, packs) -> ForwardResult:
        self.calls.append(f"reference of {len(packs)}")
        return self._all(packs, -1.5)

    def forward_backward(self, packs, normalizer) -> ForwardResult:
        self.calls.append("forward_backward")
        self.packs.append(list(packs))
        self.normalizers.append(normalizer)
        return replace(self._all(packs, -1.0), metrics=METRICS)

    def optim_step(self, learning_rate: float, *, max_grad_norm: float) -> OptimStep:
        self.calls.append("optim_step")
        self.rates.append(learning_rate)
        self.policy_version += self._applied
        return OptimStep(applied=self._applied, grad_norm=2.0 if self._applied else math.nan)

    def learned(self) -> bool:
        return self.policy_version > 0

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...

    def export(self) -> WeightsRef:
        return WeightsRef(tensors={})

    def _all(self, packs, value: float) -> ForwardResult:
        rows = [one for packed in packs for one in packed.sequences]
        return ForwardResult(logprobs=tuple((value,) * one.num_loss_tokens for one in rows))


class Knowing:
    """A teacher that knows the first token of each answer alone."""

    def score(self, packs) -> ForwardResult:
        rows = [one for packed in packs for one in packed.sequences]
        return ForwardResult(logprobs=tuple((-0.5, *(math.nan,) * (one.num_loss_tokens - 1)) for one in rows))


def group(name: str, *advantages: float, behaviour=(-1.0, -1.0)):
    return pack(
        [
            sequence(
                [3], [10 + index, 5], advantage=advantage, behaviour=behaviour, rollout_id=f"{name}{index}"
            )
            for index, advantage in enumerate(advantages)
        ]
    )


def learner(trainer: RecordingTrainer, teacher=None, **changes) -> PolicyLearner:
    values = {
        "learning_rate": 0.5,
        "lr_scheduler_type": "constant",
        "lr_warmup_steps": 0,
        "reference_kl": False,
    }
    hyper = HyperParameters.model_validate({"algorithm": "grpo", **values, **changes})
    return PolicyLearner(trainer, hyper, total_steps=10, teacher=teacher)


FIRST, SECOND, FLAT = group("a", 1.0, -1.0), group("b", 0.5, -0.5), group("c", 0.0, 0.0)


def test_only_later_mini_batches_are_scored_before_the_first_step():
    trainer = RecordingTrainer()
    found = learner(trainer).update(batch(mini_batch(FLAT), mini_batch(FIRST), mini_batch(SECOND)))
    assert trainer.calls == ["score", "forward_backward", "optim_step", "forward_backward", "optim_step"]
    first, second = trainer.packs
    assert {row.old_logprobs for one in first for row in one.sequences} == {()}
    assert {row.old_logprobs for one in second for row in one.sequences} == {(-1.0, -1.0)}
    assert trainer.rates == [0.5, 0.5]
    assert (found["actor/num_updates"], found["actor/lr"], found["actor/grad_norm"]) == (2.0, 0.5, 2.0)
    assert found["mismatch/logprob_diff_max"] == 0.0


def test_every_pass_of_an_epoch_but_the_first_is_compared_with_the_start():
    trainer = RecordingTrainer()
    learner(trainer).update(repeat(batch(mini_batch(FIRST)), 3))
    assert trainer.calls == ["score", "score", *["forward_backward", "optim_step"] * 3]


def test_packs_without_a_gradient_are_not_computed_but_counted():
    trainer = RecordingTrainer()
    learner(trainer).update(batch(mini_batch(FIRST, FLAT)))
    assert trainer.packs == [[FIRST]]
    assert trainer.normalizers == [LossNormalizer(num_tokens=8, num_rollouts=4)]
    learner(trainer).update(batch(mini_batch(FLAT)))
    assert trainer.calls == ["forward_backward", "optim_step"]


def test_what_rejection_drops_is_known_first_and_leaves_the_denominators():
    trainer = RecordingTrainer()
    far = group("d", 1.0, -1.0, behaviour=(-1.0, -3.0))  # ratios 1 and e^2
    found = learner(trainer, rollout_rs="token", rollout_rs_high=2.0).update(batch(mini_batch(far)))
    assert trainer.calls == ["score", "forward_backward", "optim_step"]
    [[computed]] = trainer.packs
    assert [row.kept for row in computed.sequences] == [(True, False)] * 2
    assert [row.weight for row in computed.sequences] == [1.0, 1.0]
    assert trainer.normalizers == [LossNormalizer(num_tokens=2, num_rollouts=2)]
    assert found["mismatch/masked_ratio"] == 0.5


def test_where_nothing_is_kept_no_step_is_taken():
    trainer = RecordingTrainer()
    far = group("d", 1.0, -1.0, behaviour=(-3.0, -3.0))
    found = learner(trainer, rollout_rs="token", rollout_rs_high=2.0).update(batch(mini_batch(far)))
    assert trainer.calls == ["score"]
    assert (found["actor/num_updates"], found["mismatch/masked_ratio"]) == (0.0, 1.0)


@pytest.mark.parametrize(("coefficient", "asked"), [(0.1, "reference of 2"), (0.0, "reference of 1")])
def test_the_reference_is_asked_of_all_for_a_kl_loss_and_else_of_the_first_pack(coefficient, asked):
    trainer = RecordingTrainer()
    learner(trainer, reference_kl=True, kl_loss_coef=coefficient).update(batch(mini_batch(FIRST, SECOND)))
    assert trainer.calls == [asked, "forward_backward", "optim_step"]
    [[first, second]] = trainer.packs
    assert {row.reference_logprobs for row in first.sequences} == {(-1.5, -1.5)}
    assert {row.reference_logprobs for row in second.sequences} == {(-1.5, -1.5) if coefficient else ()}


def test_a_teacher_is_asked_of_every_pack_and_its_logprobs_travel_with_them():
    trainer = RecordingTrainer()
    learner(trainer, teacher=Knowing()).update(batch(mini_batch(FLAT)))
    [[judged]] = trainer.packs
    assert [row.teacher_logprobs[0] for row in judged.sequences] == [-0.5, -0.5]
    assert all(math.isnan(row.teacher_logprobs[1]) for row in judged.sequences)


def test_a_step_that_was_not_taken_is_counted():
    trainer = RecordingTrainer(applied=False)
    found = learner(trainer).update(batch(mini_batch(FIRST)))
    assert (found["actor/num_updates"], found["actor/skipped_updates"]) == (0.0, 1.0)
    assert math.isnan(found["actor/grad_norm"])
