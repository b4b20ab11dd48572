"""A Llama whose every number is known: it finds all four of its tokens equally likely, until it is taught.

All weights are 0 but the embeddings, which are 1: whatever it reads, its last hidden state is four ones, so a
row of the output layer is a token's logit divided by four, and nothing but the output layer has a gradient.
AdamW's first step moves a weight by the learning rate against the sign of its gradient.
"""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

WIDTH = NUM_TOKENS = 4


def uniform_llama(*logits: float) -> LlamaForCausalLM:
    """In float64; `logits` of the four tokens, 0 unless given."""
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=NUM_TOKENS,
            hidden_size=WIDTH,
            intermediate_size=WIDTH,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            max_position_embeddings=4096,
            rms_norm_eps=0.0,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1.0 if "norm" in name or "embed" in name else 0.0)
        for token, logit in enumerate(logits):
            model.lm_head.weight[token] = logit / WIDTH
    return model
