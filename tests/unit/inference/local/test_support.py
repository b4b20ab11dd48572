"""Models that the engine cannot sample are refused with the reason."""

from __future__ import annotations

import pytest
import torch
import transformers

from fakes.families import GROUPED, SHAPE, engine_of, tiny_model
from fakes.tokenizer import tiny_tokenizer
from strop.errors import EngineError
from strop.inference.local import Engine, EngineConfig


def _engine(model, **settings) -> Engine:
    return engine_of(
        model, tiny_tokenizer(), EngineConfig(**({"dtype": "float32", "max_length": 64} | settings))
    )


def test_a_sliding_window_shorter_than_a_sequence_is_refused():
    model = transformers.MistralForCausalLM(transformers.MistralConfig(**GROUPED, sliding_window=32))
    with pytest.raises(EngineError, match="window of 32 tokens, max_length is 64"):
        _engine(model)
    _engine(model, max_length=32)


def test_recurrent_layers_are_refused():
    config = transformers.MambaConfig(vocab_size=SHAPE["vocab_size"], hidden_size=32, num_hidden_layers=1)
    with pytest.raises(EngineError, match="recurrent"):
        _engine(transformers.MambaForCausalLM(config))


def test_attention_with_softcapped_scores_is_refused():
    config = transformers.Gemma2Config(**SHAPE, num_key_value_heads=1, head_dim=16)
    with pytest.raises(EngineError, match="softcap"):
        _engine(transformers.Gemma2ForCausalLM(config))


def test_attention_that_cannot_be_replaced_is_refused():
    config = transformers.BloomConfig(vocab_size=SHAPE["vocab_size"], hidden_size=32, n_layer=1, n_head=2)
    with pytest.raises(EngineError, match=r"positions|attention"):
        _engine(transformers.BloomForCausalLM(config))


def test_positions_that_change_with_the_length_are_refused():
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**(GROUPED | {"max_position_embeddings": 32}), rope_parameters=rope)
    )
    with pytest.raises(EngineError, match="beyond"):
        _engine(model)


def test_a_length_beyond_the_models_positions_is_refused():
    with pytest.raises(EngineError, match="beyond the 256 positions"):
        _engine(tiny_model("llama"), max_length=257)
    assert _engine(tiny_model("llama"), max_length=None).max_length == 256


def test_a_model_whose_logits_the_engine_cannot_match_is_refused(monkeypatch):
    monkeypatch.setattr("strop.inference.local.fused._rotate", lambda x, rotation: None)
    with pytest.raises(EngineError, match="differ from the model's own"):
        _engine(tiny_model("llama"))


def test_looking_at_the_model_leaves_it_as_it_was():
    model = tiny_model("gpt2").train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    _engine(model)
    assert model.training
    assert model.config._attn_implementation != "strop_engine"
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"dtype": "float16"}, "dtype"),
        ({"max_length": 1}, "max_length"),
        ({"max_sequences": 0}, "max_sequences"),
        ({"kv_memory_bytes": 0}, "kv_memory_bytes"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        EngineConfig(**settings)


def test_auto_is_bfloat16_only_where_the_processor_multiplies_it(monkeypatch):
    from strop.inference.local.config import sampling_dtype

    cpu = torch.device("cpu")
    for fast, expected in ((False, torch.float32), (True, torch.bfloat16)):
        monkeypatch.setattr("strop.inference.local.config.has_fast_bfloat16", lambda found=fast: found)
        assert sampling_dtype("auto", cpu) is expected
    assert sampling_dtype("bfloat16", cpu) is torch.bfloat16
