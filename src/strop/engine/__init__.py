"""Prompts as token ids -> sampled token ids, logprobs, text: continuous batching over a causal language
model.

`Engine` satisfies `strop.gateway.sampler.Sampler`. Everything else here is private.
"""

from strop.engine.adapter import LowRank, check_base, read_adapter
from strop.engine.config import EngineConfig
from strop.engine.engine import Engine
from strop.engine.generation import Generation
from strop.engine.stats import EngineStats

__all__ = [
    "Engine",
    "EngineConfig",
    "EngineStats",
    "Generation",
    "LowRank",
    "check_base",
    "read_adapter",
]
