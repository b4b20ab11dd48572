"""A learner of a tiny model: its dtypes, what it saves, and what it refuses."""

from pathlib import Path

import pytest
import torch

from fakes.learning import GROUP, OTHER, Learner, largest_difference, learner, settings, weights
from fakes.model import tiny_llama
from fakes.packs import batch, mini_batch, random_pack
from fakes.tokenizer import tiny_tokenizer
from strop.errors import CheckpointError, ModelError
from strop.learners.local.checkpoint import Checkpoints


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
    learner(torch.float32, lora_rank=2).save(tmp_path / "adapted")
    ours = learner(torch.float32)
    before = weights(ours)
    with pytest.raises(CheckpointError, match="began with other weights"):
        ours.load(tmp_path / "other")
    with pytest.raises(CheckpointError, match="is of another model: it has no"):
        ours.load(tmp_path / "adapted")
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
    monkeypatch.setattr("strop.learners.precision.has_fast_bfloat16", lambda: fast)
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
