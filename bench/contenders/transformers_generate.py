"""Prompts -> tokens/s of transformers' `generate`."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from bench.contender import Answer, serve


def prepare(settings: Answer):
    model: Any = AutoModelForCausalLM.from_pretrained(
        settings["model"], dtype=getattr(torch, settings["dtype"]), attn_implementation=settings["attention"]
    ).eval()
    options = {
        "do_sample": True,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "eos_token_id": None,
        "pad_token_id": 0,
        "cache_implementation": settings["cache"],
    }

    @torch.inference_mode()
    def generate(prompts: list[list[int]], rollouts: int, new_tokens: int) -> int:
        ids = torch.tensor(prompts)
        rows = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            num_return_sequences=rollouts,
            **options,
        )
        return rows[:, ids.shape[1] :].numel()

    def run(request: Answer) -> Answer:
        start = time.perf_counter()
        tokens = generate(request["prompts"], request["rollouts"], request["new_tokens"])
        return {"seconds": time.perf_counter() - start, "tokens": tokens}

    generate(settings["warm_up"], 1, 2)
    return run, {
        "version": transformers.__version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    serve(prepare)
