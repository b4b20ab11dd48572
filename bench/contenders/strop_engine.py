"""Prompts -> tokens/s of Strop's engine."""

from __future__ import annotations

import time
from typing import Any

import torch

import strop
from bench.contender import Answer, serve
from bench.workload import NEW_TOKENS, PROMPT_TOKENS
from strop.inference.local import Engine, EngineConfig
from strop.learners import models
from strop.schema.sampling import SamplingParams


def prepare(settings: Answer):
    model, tokenizer = models.load(settings["model"])
    forget_end_tokens(model, tokenizer)
    engine = engine_of(model, tokenizer)
    engine.start()

    def generate(prompts: list[list[int]], rollouts: int, new_tokens: int) -> int:
        each = [prompt for prompt in prompts for _ in range(rollouts)]
        completions = engine.generate(each, SamplingParams(max_tokens=new_tokens))
        return sum(len(completion.token_ids) for completion in completions)

    def run(request: Answer) -> Answer:
        start = time.perf_counter()
        tokens = generate(request["prompts"], request["rollouts"], request["new_tokens"])
        return {"seconds": time.perf_counter() - start, "tokens": tokens}

    generate(settings["warm_up"], 1, 2)
    return run, {"version": strop.__version__, "torch": torch.__version__, "threads": torch.get_num_threads()}


def engine_of(model: Any, tokenizer: Any) -> Engine:
    """An engine with these weights and ends."""
    config = EngineConfig(max_length=PROMPT_TOKENS + NEW_TOKENS, max_sequences=64)
    return Engine.from_weights(
        model.config, model.state_dict(), tokenizer, config, generation_config=model.generation_config
    )


def forget_end_tokens(model: Any, tokenizer: Any) -> None:
    """Answers of a set length, as `ignore_eos` and `min_new_tokens` give them elsewhere."""
    for owner in (model.config, model.generation_config):
        owner.eos_token_id = None
    tokenizer.eos_token = None


if __name__ == "__main__":
    serve(prepare)
