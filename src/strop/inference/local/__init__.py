"""Prompts as token ids -> sampled token ids, logprobs, text: continuous batching over a causal language
model.

`Engine` satisfies `strop.inference.chat.sampler.Sampler`. Everything else here is private.
"""

from strop.inference.local.adapter import LowRank, check_base, read_adapter
from strop.inference.local.config import EngineConfig
from strop.inference.local.engine import Engine
from strop.inference.local.generation import Generation
from strop.inference.local.stats import EngineStats

__all__ = [
    "Engine",
    "EngineConfig",
    "EngineStats",
    "Generation",
    "LowRank",
    "check_base",
    "read_adapter",
]
