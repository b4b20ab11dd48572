"""Seed -> a tiny Llama with the tiny tokenizer, as a folder that transformers loads: trains in seconds."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fakes.tokenizer import tiny_tokenizer


def tiny_llama(seed: int = 0) -> LlamaForCausalLM:
    """Two layers of width 64 over the tiny tokenizer's vocabulary; float32, random weights."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def save_tiny_model(folder: Path, seed: int = 0) -> Path:
    """Write model and tokenizer below `folder` in Hugging Face layout."""
    tiny_llama(seed).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
