"""Prompts as token ids -> sampled token ids, logprobs, text: continuous batching over a causal language
model.

`Engine` satisfies `strop.inference.chat.sampler.Sampler`. Everything else here is private.
"""

from strop.inference.local.adapter import LowRank, check_base, read_adapter
from strop.inference.local.config import EngineConfig
from strop.inference.local.engine import Engine
from strop.inference.local.generation import Generation
from strop.inference.local.stats import EngineStats
from strop.inference.local.weight_sync import SharedMemorySync

__all__ = [
    "Engine",
    "EngineConfig",
    "EngineStats",
    "Generation",
    "LowRank",
    "SharedMemorySync",
    "check_base",
    "read_adapter",
]
