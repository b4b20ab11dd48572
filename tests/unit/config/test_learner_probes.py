"""A probe for each setting of the learners: with two settings of it, the same batch teaches something else.

`test_all_hyper_parameters` makes sure that none is without a probe here or in `test_flow_probes`.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch

from fakes.learning import Critic, Learner, OfflineLearner
from fakes.model import tiny_llama
from fakes.offline import example, packed
from fakes.packs import batch, mini_batch, random_pack
from fakes.tokenizer import tiny_tokenizer
from strop.algorithms import Aggregation
from strop.config.job import HyperParameters
from strop.inference.local.config import sampling_dtype
from strop.rl.gae import with_gae
from strop.rl.schedule import learning_rate

Probe = Callable[[Path], None]
PROBES: dict[str, Probe] = {}


def probe(name: str) -> Callable[[Probe], Probe]:
    def register(made: Probe) -> Probe:
        PROBES[name] = made
        return made

    return register


PACKS = (random_pack(0), random_pack(1), random_pack(0))


def settings(**changes) -> HyperParameters:
    values = {"learning_rate": 1e-2, "lr_scheduler_type": "constant", "lr_warmup_steps": 0}
    return HyperParameters.model_validate({**values, "train_dtype": "float32", **changes})


class Learned:
    """What two steps of three mini-batches made of the tiny model."""

    def __init__(self, *packs, **changes) -> None:
        self.learner = Learner(tiny_llama(), tiny_tokenizer(), settings(**changes), total_steps=10)
        minis = [mini_batch(one) for one in packs or PACKS]
        for step in (1, 2):
            self.metrics = self.learner.update(batch(*minis, step=step))
        self.weights = {
            name: weight.detach().clone() for name, weight in self.learner.weights().named_parameters()
        }

    def changed(self, since: dict[str, torch.Tensor]) -> set[str]:
        return {name for name, weight in self.weights.items() if not torch.equal(weight, since[name])}


def start() -> dict[str, torch.Tensor]:
    return dict(tiny_llama().named_parameters())


def learn_differently(*variants: dict) -> None:
    """Each two of them end at different weights, and the first repeats exactly."""
    made = [Learned(**variant) for variant in variants]
    assert not made[0].changed(Learned(**variants[0]).weights)
    for index, one in enumerate(made):
        for other in made[index + 1 :]:
            assert one.changed(other.weights)


def rate(step: int = 5, **changes) -> float:
    return learning_rate(step, settings(**changes), total_steps=10)


@probe("learning_rate")
def _(folder: Path) -> None:
    assert [Learned(learning_rate=value).metrics["actor/lr"] for value in (1e-3, 2e-3)] == [1e-3, 2e-3]
    learn_differently({"learning_rate": 1e-3}, {"learning_rate": 2e-3})


@probe("lr_scheduler_type")
def _(folder: Path) -> None:
    found = [rate(lr_scheduler_type=kind) for kind in ("constant", "linear", "cosine")]
    assert found == pytest.approx([1e-2, 5e-3, 5e-3])
    assert rate(2, lr_scheduler_type="cosine") > rate(2, lr_scheduler_type="linear")


@probe("lr_warmup_steps")
def _(folder: Path) -> None:
    assert [rate(0, lr_warmup_steps=steps) for steps in (0, 4)] == [1e-2, 2.5e-3]


CLIP = {"algorithm": "grpo", "dual_clip": 0}


@probe("clip_ratio_low")
def _(folder: Path) -> None:
    tight, loose = (
        Learned(**CLIP, clip_ratio_low=low, clip_ratio_high=9.0).metrics["actor/pg_clipfrac"]
        for low in (1e-7, 1.0)
    )
    assert tight > loose == 0


@probe("clip_ratio_high")
def _(folder: Path) -> None:
    tight, loose = (
        Learned(**CLIP, clip_ratio_low=1e-7, clip_ratio_high=high).metrics["actor/pg_clipfrac"]
        for high in (1e-7, 9.0)
    )
    assert tight > loose


@probe("dual_clip")
def _(folder: Path) -> None:
    on, off = (
        Learned(algorithm="grpo", clip_ratio_high=9.0, dual_clip=bound).metrics["actor/pg_clipfrac_lower"]
        for bound in (1 + 1e-7, 0)
    )
    assert on > off == 0


@probe("tau_pos")
def _(folder: Path) -> None:
    learn_differently({"algorithm": "sapo", "tau_pos": 1.0}, {"algorithm": "sapo", "tau_pos": 9.0})


@probe("tau_neg")
def _(folder: Path) -> None:
    learn_differently({"algorithm": "sapo", "tau_neg": 1.0}, {"algorithm": "sapo", "tau_neg": 9.0})


@probe("loss_agg_mode")
def _(folder: Path) -> None:
    kinds = get_args(Aggregation)
    found = [Learned(algorithm="grpo", loss_agg_mode=kind).metrics["actor/grad_norm"] for kind in kinds]
    assert len({round(value, 6) for value in found}) == len(kinds)


@probe("entropy_coeff")
def _(folder: Path) -> None:
    plain, pulled = Learned(), Learned(entropy_coeff=1.0)
    assert pulled.changed(plain.weights)
    assert pulled.metrics["actor/entropy"] != plain.metrics["actor/entropy"]


@probe("kl_loss_coef")
def _(folder: Path) -> None:
    free, held = Learned(), Learned(kl_loss_coef=5.0)
    assert abs(held.metrics["actor/reference_kl_k1"]) < abs(free.metrics["actor/reference_kl_k1"])


@probe("kl_loss_type")
def _(folder: Path) -> None:
    learn_differently(*({"kl_loss_coef": 1.0, "kl_loss_type": kind} for kind in ("k1", "k2", "k3")))


@probe("reference_kl")
def _(folder: Path) -> None:
    assert "actor/reference_kl_k1" in Learned(reference_kl=True).metrics
    assert "actor/reference_kl_k1" not in Learned(reference_kl=False).metrics


def mistaken():
    """The same groups, with behaviour logprobs near the tiny model's own and one token far off."""
    return tuple(
        replace(
            one,
            sequences=tuple(
                replace(
                    item,
                    behaviour_logprobs=tuple(
                        (-5.5 - index % 3 if sampled else 0.0) for index, sampled in enumerate(item.loss_mask)
                    ),
                )
                for item in one.sequences
            ),
        )
        for one in PACKS
    )


@probe("rollout_is")
def _(folder: Path) -> None:
    found = [Learned(*mistaken(), rollout_is=kind).metrics["actor/grad_norm"] for kind in ("none", "token")]
    assert found[0] != found[1]
    assert Learned(*mistaken(), rollout_is="sequence").metrics["actor/grad_norm"] not in found


@probe("rollout_is_threshold")
def _(folder: Path) -> None:
    found = [
        Learned(*mistaken(), rollout_is="token", rollout_is_threshold=cap).metrics["mismatch/truncated_ratio"]
        for cap in (1.0, 1e6)
    ]
    assert found[0] > found[1] == 0


def rejected(**changes) -> float:
    return Learned(*mistaken(), **changes).metrics["mismatch/masked_ratio"]


@probe("rollout_rs")
def _(folder: Path) -> None:
    assert rejected(rollout_rs="token") > 0
    assert rejected(rollout_rs="geometric") == 1.0
    assert rejected() == 0 or "mismatch/masked_ratio" not in Learned().metrics


@probe("rollout_rs_low")
def _(folder: Path) -> None:
    found = [rejected(rollout_rs="token", rollout_rs_low=low, rollout_rs_high=1e6) for low in (1e-6, 0.9)]
    assert found[0] == 0 < found[1]


@probe("rollout_rs_high")
def _(folder: Path) -> None:
    found = [rejected(rollout_rs="token", rollout_rs_low=1e-6, rollout_rs_high=high) for high in (1e6, 1.1)]
    assert found[0] == 0 < found[1]


@probe("max_grad_norm")
def _(folder: Path) -> None:
    # Adam forgets the scale of a gradient; only one that all but vanishes shows.
    learn_differently({"max_grad_norm": 1.0}, {"max_grad_norm": 1e-8})


@probe("weight_decay")
def _(folder: Path) -> None:
    free, decayed = Learned(weight_decay=0.0), Learned(weight_decay=1.0)
    norms = [sum(float(weight.norm()) for weight in one.weights.values()) for one in (free, decayed)]
    assert norms[1] < norms[0]


@probe("freeze_embeddings")
def _(folder: Path) -> None:
    embedding = "model.embed_tokens.weight"
    assert embedding in Learned(freeze_embeddings=False).changed(start())
    frozen = Learned(freeze_embeddings=True).changed(start())
    assert frozen
    assert embedding not in frozen


@probe("train_dtype")
def _(folder: Path) -> None:
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        learner = Learner(tiny_llama(), tiny_tokenizer(), settings(train_dtype=name), total_steps=1)
        assert next(learner.weights().parameters()).dtype is dtype


@probe("sampling_dtype")
def _(folder: Path) -> None:
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        hyper = HyperParameters.model_validate({"sampling_dtype": name})
        assert sampling_dtype(hyper.sampling_dtype, torch.device("cpu")) is dtype


def adapter_values(**changes) -> int:
    learner = Learner(tiny_llama(), tiny_tokenizer(), settings(**changes), total_steps=10)
    return sum(weight.numel() for weight in learner._optimizer.masters.values())


@probe("lora_rank")
def _(folder: Path) -> None:
    assert adapter_values(lora_rank=4) == 2 * adapter_values(lora_rank=2)
    assert adapter_values(lora_rank=4) < adapter_values()
    assert "model.norm.weight" not in Learned(lora_rank=4).changed(start())


@probe("lora_alpha")
def _(folder: Path) -> None:
    learn_differently({"lora_rank": 2, "lora_alpha": 4.0}, {"lora_rank": 2, "lora_alpha": 64.0})


@probe("target_modules")
def _(folder: Path) -> None:
    changed = Learned(lora_rank=2, target_modules=["q_proj"]).changed(start())
    assert {name.split(".")[-2] for name in changed} == {"q_proj"}
    assert len(Learned(lora_rank=2).changed(start())) > len(changed)


ROWS = (
    example("a", [5, 6, 7], [20, 21, 22], [30, 31], weights=[0, 0], pairs=((0, 1),)),
    example("b", [5, 6], [30, 31], [40, 41, 42, 43], weights=[0, 0], pairs=((0, 1),)),
)


def preferred(**changes) -> dict[str, float]:
    learner = OfflineLearner(tiny_llama(), tiny_tokenizer(), settings(**changes), total_steps=10)
    learner.remember_reference(packed(*ROWS))
    for step in (1, 2):
        metrics = learner.update(batch(mini_batch(*packed(*ROWS)), step=step))
    return metrics


@probe("lora_dropout")
def _(folder: Path) -> None:
    found = [preferred(lora_rank=2, lora_dropout=share)["dpo/loss"] for share in (0.0, 0.5)]
    assert found[0] != found[1]


@probe("dpo_loss")
def _(folder: Path) -> None:
    assert preferred(dpo_loss="sigmoid")["dpo/loss"] != preferred(dpo_loss="ipo")["dpo/loss"]


@probe("dpo_beta")
def _(folder: Path) -> None:
    assert preferred(dpo_beta=0.1)["dpo/loss"] != preferred(dpo_beta=0.5)["dpo/loss"]


@probe("label_smoothing")
def _(folder: Path) -> None:
    assert preferred(label_smoothing=0.0)["dpo/loss"] != preferred(label_smoothing=0.3)["dpo/loss"]


def criticised(**changes) -> dict[str, float]:
    """The critic's second step on groups with rewards."""
    hyper = settings(algorithm="ppo", **changes)
    critic = Critic(tiny_llama(), hyper, total_steps=10)
    rewarded = [
        replace(
            one,
            sequences=tuple(replace(item, reward=float(index)) for index, item in enumerate(one.sequences)),
        )
        for one in PACKS
    ]
    for step in (1, 2):
        made = batch(*(mini_batch(one) for one in rewarded), step=step)
        metrics = critic.update(with_gae(made, critic.values(made), gamma=1.0, lam=1.0))
    return dict(metrics)


@probe("critic_learning_rate")
def _(folder: Path) -> None:
    assert [criticised(critic_learning_rate=value)["critic/lr"] for value in (1e-4, 1e-2)] == [1e-4, 1e-2]


@probe("cliprange_value")
def _(folder: Path) -> None:
    tight, off = (
        criticised(cliprange_value=band, critic_learning_rate=1e-2)["critic/vf_clipfrac"]
        for band in (1e-6, 0.0)
    )
    assert tight > off == 0


@pytest.mark.parametrize("name", sorted(PROBES))
def test_a_hyper_parameter_of_the_learners_does_what_it_says(name, tmp_path):
    PROBES[name](tmp_path)
