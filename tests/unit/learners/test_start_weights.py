"""What is in no checkpoint, the reference and frozen weights, must be the same when a run goes on."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from fakes.learning import Critic, Learner
from fakes.model import tiny_llama
from fakes.packs import mini_batch, sequence
from fakes.tokenizer import tiny_tokenizer
from strop.config.job import HyperParameters
from strop.errors import CheckpointError, ModelError
from strop.learners.local.teacher import Teacher
from strop.learners.weights_file import sha256_of
from strop.rl.batch import pack
from strop.schema.batch import Batch


def learner(seed: int, **changes) -> Learner:
    values = {"learning_rate": 0.01, "reference_kl": False, "train_dtype": "float32", **changes}
    hyper = HyperParameters.model_validate(values)
    return Learner(tiny_llama(seed), tiny_tokenizer(), hyper, total_steps=2)


@pytest.mark.parametrize(
    "changes", [{}, {"reference_kl": True}, {"freeze_embeddings": True}, {"lora_rank": 2}]
)
@pytest.mark.parametrize("train_dtype", ["float32", "bfloat16"])
def test_a_run_goes_on_only_from_the_model_it_began_with(changes: dict, train_dtype: str, tmp_path: Path):
    changes = changes | {"train_dtype": train_dtype}
    learner(0, **changes).save(tmp_path)
    learner(0, **changes).load(tmp_path)
    other = learner(1, **changes)
    before = sha256_of(dict(other.weights().named_parameters()))
    with pytest.raises(CheckpointError, match=r"other weights, those that .* had") as caught:
        other.load(tmp_path)
    assert "restore the model as it was" in str(caught.value)
    assert sha256_of(dict(other.weights().named_parameters())) == before


@pytest.mark.parametrize("train_dtype", ["float32", "bfloat16"])
def test_a_run_goes_on_only_with_the_teacher_it_learned_from(train_dtype: str, tmp_path: Path):
    def student(teacher_seed: int) -> Learner:
        hyper = HyperParameters.model_validate(
            {"max_length": 64, "max_prompt_length": 32, "train_dtype": train_dtype}
        )
        tokenizer = tiny_tokenizer()
        teacher = Teacher(tiny_llama(teacher_seed), tokenizer, hyper, student_tokenizer=tokenizer)
        return Learner(tiny_llama(0), tokenizer, hyper, total_steps=2, teacher=teacher)

    student(3).save(tmp_path)
    student(3).load(tmp_path)
    with pytest.raises(CheckpointError, match="learned from another teacher"):
        student(4).load(tmp_path)


@pytest.mark.parametrize("train_dtype", ["float32", "bfloat16"])
def test_weights_that_are_not_finite_are_refused_where_they_come_in(train_dtype: str, tmp_path: Path):
    broken = tiny_llama(0)
    with torch.no_grad():
        broken.model.norm.weight[1] = math.nan
    hyper = HyperParameters.model_validate({"train_dtype": train_dtype})
    with pytest.raises(ModelError, match=r"'model\.norm\.weight' holds NaN or infinity"):
        Learner(broken, tiny_tokenizer(), hyper, total_steps=2)
    learner(0, train_dtype=train_dtype).save(tmp_path)
    spoil(tmp_path / "model.safetensors", "model.norm.weight", math.inf)
    with pytest.raises(CheckpointError, match=r"'model\.norm\.weight' holds NaN or infinity") as caught:
        learner(0, train_dtype=train_dtype).load(tmp_path)
    assert "fix: resume from an earlier checkpoint" in str(caught.value)


def test_weights_that_float32_went_to_infinity_with_are_those_it_saves(tmp_path: Path):
    first = learner(0, train_dtype="float32")
    with torch.no_grad():
        first.weights().get_parameter("model.norm.weight")[1] = math.inf
    first.save(tmp_path)
    with pytest.raises(CheckpointError, match=r"'model\.norm\.weight' holds NaN or infinity"):
        learner(0, train_dtype="float32").load(tmp_path)


@pytest.mark.parametrize("train_dtype", ["float32", "bfloat16"])
def test_a_state_of_the_optimizer_that_is_not_finite_is_refused(train_dtype: str, tmp_path: Path):
    first = learner(0, train_dtype=train_dtype)
    first.update(Batch(step=1, mini_batches=(mini_batch(pack([sequence([3], [4, 5], advantage=1.0)])),)))
    first.save(tmp_path)
    spoil(tmp_path / "trainer" / "optimizer.safetensors", "exp_avg_sq/model.norm.weight", math.inf)
    with pytest.raises(CheckpointError, match=r"the optimizer in .* is not finite"):
        learner(0, train_dtype=train_dtype).load(tmp_path)


BEYOND = 3.4e38
"""float32 ends at (2 - 2**-23) * 2**127 = 3.4028e38, bfloat16 at (2 - 2**-7) * 2**127 = 3.3895e38, and rounds
to infinity from (2 - 2**-8) * 2**127 = 3.3962e38 on."""


def large() -> LlamaForCausalLM:
    """Finite in float32; not a token that the check of logits reads."""
    model = tiny_llama(0)
    with torch.no_grad():
        model.model.embed_tokens.weight[9, 0] = BEYOND
    return model


def test_weights_that_only_float32_can_hold_are_refused_in_bfloat16():
    narrow, wide = (
        HyperParameters.model_validate(
            {"train_dtype": name, "reference_kl": False, "max_length": 64, "max_prompt_length": 32}
        )
        for name in ("bfloat16", "float32")
    )
    tokenizer = tiny_tokenizer()
    makers = (
        lambda hyper: Learner(large(), tokenizer, hyper, total_steps=2),
        lambda hyper: Critic(large(), hyper, total_steps=2),
        lambda hyper: Teacher(large(), tokenizer, hyper, student_tokenizer=tokenizer),
    )
    for made in makers:
        with pytest.raises(
            ModelError, match=r"not all finite in bfloat16: .*embed_tokens\.weight'"
        ) as caught:
            made(narrow)
        assert "fix: set train_dtype: float32" in str(caught.value)
        made(wide)


def test_a_checkpoint_that_only_float32_can_hold_is_refused_in_bfloat16(tmp_path: Path):
    learner(0, train_dtype="float32").save(tmp_path)
    spoil(tmp_path / "model.safetensors", "model.norm.weight", BEYOND)
    learner(0, train_dtype="float32").load(tmp_path)
    narrow = learner(0, train_dtype="bfloat16")
    before = sha256_of(dict(narrow.weights().named_parameters()))
    with pytest.raises(CheckpointError, match=r"does not fit bfloat16: 'model\.norm\.weight'") as caught:
        narrow.load(tmp_path)
    assert "fix: set train_dtype: float32" in str(caught.value)
    assert sha256_of(dict(narrow.weights().named_parameters())) == before


def spoil(file: Path, name: str, value: float) -> None:
    """Put a number into a saved tensor."""
    tensors = load_file(file)
    tensors[name][1] = value
    save_file(tensors, file, {"format": "pt"})


@pytest.mark.parametrize(
    "changes",
    [{}, {"freeze_embeddings": True}, {"lora_rank": 2}, {"kl_loss_coef": 0.1, "reference_kl": True}],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_learner_knows_whether_it_has_learned_anything_also_after_a_resume(
    changes: dict, dtype: torch.dtype, tmp_path: Path
):
    def made() -> Learner:
        hyper = HyperParameters.model_validate(
            {"learning_rate": 0.01, "lr_scheduler_type": "constant", "reference_kl": False, **changes}
        )
        return Learner(tiny_llama(0), tiny_tokenizer(), hyper, total_steps=2, dtype=dtype)

    one = made()
    assert not one.learned()
    one.update(Batch(step=1, mini_batches=(mini_batch(pack([sequence([3], [4, 5], advantage=0.0)])),)))
    assert not one.learned()
    one.save(tmp_path / "as it was")
    one.update(Batch(step=1, mini_batches=(mini_batch(pack([sequence([3], [4, 5], advantage=1.0)])),)))
    assert one.learned()
    one.save(tmp_path / "moved")
    for name, learned in (("as it was", False), ("moved", True)):
        two = made()
        two.load(tmp_path / name)
        assert two.learned() is learned


def test_the_hash_is_of_names_shapes_dtypes_and_bits():
    ones = torch.ones(2, 3)
    alike = {"a": ones, "b": torch.zeros(1)}
    assert sha256_of(alike) == sha256_of({"b": torch.zeros(1), "a": ones.clone()})
    for other in (
        {"a": ones, "c": torch.zeros(1)},
        {"a": ones.reshape(3, 2), "b": torch.zeros(1)},
        {"a": ones.double(), "b": torch.zeros(1)},
        {"a": ones, "b": -torch.zeros(1)},
        {"a": ones},
    ):
        assert sha256_of(other) != sha256_of(alike)
