"""Name -> a tiny random model of that architecture over the tiny tokenizer, to compare with transformers.

`from fakes.families import tiny_model`. Two layers of width 64, float32, with weights that make answers vary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from fakes.tokenizer import tiny_tokenizer
from strop.inference.local import Engine, EngineConfig

EOS = 2

SHAPE: dict[str, Any] = {
    "vocab_size": len(tiny_tokenizer()),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": EOS,
    "pad_token_id": 0,
}
GROUPED = SHAPE | {"num_key_value_heads": 2}


def _llama() -> PreTrainedModel:
    config = transformers.LlamaConfig(**GROUPED, attention_bias=True, mlp_bias=True)
    return transformers.LlamaForCausalLM(config)


def _llama3_rope() -> PreTrainedModel:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    config = transformers.LlamaConfig(**GROUPED, rope_parameters=rope, tie_word_embeddings=True)
    return transformers.LlamaForCausalLM(config)


def _mistral() -> PreTrainedModel:
    return transformers.MistralForCausalLM(transformers.MistralConfig(**GROUPED, sliding_window=None))


def _qwen2() -> PreTrainedModel:
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**GROUPED, tie_word_embeddings=True))


def _qwen3() -> PreTrainedModel:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**GROUPED, head_dim=32))


def _gpt_neox() -> PreTrainedModel:
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**SHAPE))


def _gpt2() -> PreTrainedModel:
    config = transformers.GPT2Config(
        vocab_size=SHAPE["vocab_size"],
        n_embd=64,
        n_layer=2,
        n_head=4,
        n_positions=256,
        bos_token_id=1,
        eos_token_id=EOS,
        pad_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config)


def _phi() -> PreTrainedModel:
    return transformers.PhiForCausalLM(transformers.PhiConfig(**SHAPE))


def _gemma() -> PreTrainedModel:
    config = transformers.GemmaConfig(**SHAPE, num_key_value_heads=1, head_dim=16)
    return transformers.GemmaForCausalLM(config)


FUSED: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": _llama,
    "llama3_rope": _llama3_rope,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
}
GENERIC: dict[str, Callable[[], PreTrainedModel]] = {
    "gpt_neox": _gpt_neox,
    "gpt2": _gpt2,
    "phi": _phi,
    "gemma": _gemma,
}


def tiny_model(name: str, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    model = (FUSED | GENERIC)[name]()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.15)
    assert model.generation_config is not None
    model.generation_config.eos_token_id = EOS
    model.generation_config.pad_token_id = 0
    return model.eval()


def engine_of(model: PreTrainedModel, tokenizer: Any, config: EngineConfig) -> Engine:
    """An engine with the weights of `model`, which it is not handed."""
    return Engine.from_weights(
        model.config, model.state_dict(), tokenizer, config, generation_config=model.generation_config
    )


def greedy(model: PreTrainedModel, prompt: list[int], max_tokens: int) -> list[int]:
    """What transformers' `generate` samples greedily."""
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, do_sample=False)
    return out[0, len(prompt) :].tolist()


def plain_logprobs(model: PreTrainedModel, prompt: list[int], answer: list[int], temperature: float = 1.0):
    """Log-softmax of a plain forward pass at the answer's positions: (T, V)."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer])).logits[0].float()
    return torch.log_softmax(logits[len(prompt) - 1 : -1] / temperature, dim=-1)


def random_prompts(lengths: list[int], seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, SHAPE["vocab_size"], (n,), generator=generator).tolist() for n in lengths]
