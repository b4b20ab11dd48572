"""Seed -> a published LoRA model: its folder with the merged weights and the adapter, as training writes it.

`from fakes.lora import save_lora, save_lora_model`.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from fakes.tokenizer import tiny_tokenizer
from strop.learners.local.lora import Adapter


def save_lora(model: Any, folder: Path, *, seed: int, targets: list[str] | None = None) -> Any:
    """Adapt a copy of `model` by random numbers, large enough to change what it says. Returns the copy."""
    merged = copy.deepcopy(model)
    exact = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    adapter = Adapter(merged, exact, rank=4, alpha=8, target_modules=targets, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for site in adapter.sites.values():
            site.b_OR.copy_(torch.empty_like(site.b_OR).normal_(0, 0.2, generator=generator))
    adapter.merge()
    adapter.export(folder / "adapter")
    return merged


def save_lora_model(base: Path, folder: Path, *, seed: int) -> Path:
    """What publishing a LoRA run on the model in `base` leaves in `folder`."""
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    save_lora(model, folder, seed=seed).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)
    return folder
