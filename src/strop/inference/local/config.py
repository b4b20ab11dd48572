"""What an engine may use: precision, lengths, memory.

Read once, when the engine is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from strop.processor import has_fast_bfloat16

DtypeName = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Limits of one engine.

    Units:
        dtype: precision of weights and KV; `auto` is bfloat16 where the processor multiplies it, else
        float32.
        max_length: tokens of prompt and answer together, a sequence; None is what the model was made for.
        max_sequences: sequences in one batch, at most; more wait.
        kv_memory_bytes: bound of the KV cache. None gives every sequence of a full batch room for
        `max_length`.
        seed: where the seeds of requests come from that bring none.
    """

    dtype: DtypeName = "auto"
    max_length: int | None = None
    max_sequences: int = 64
    kv_memory_bytes: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in ("auto", "float32", "bfloat16"):
            raise ValueError(f"dtype must be auto, float32 or bfloat16, found {self.dtype!r}")
        if self.max_length is not None and self.max_length < 2:
            raise ValueError(
                f"max_length must be at least 2 (a prompt and an answer), found {self.max_length}"
            )
        if self.max_sequences < 1:
            raise ValueError(f"max_sequences must be at least 1, found {self.max_sequences}")
        if self.kv_memory_bytes is not None and self.kv_memory_bytes < 1:
            raise ValueError(f"kv_memory_bytes must be positive, found {self.kv_memory_bytes}")


def sampling_dtype(name: DtypeName, device: torch.device) -> torch.dtype:
    """The precision to sample in.

    bfloat16 without an instruction for it is emulated: measured 7 times slower than float32 on an AVX2
    machine.
    """
    if name != "auto":
        return torch.float32 if name == "float32" else torch.bfloat16
    return torch.bfloat16 if device.type != "cpu" or has_fast_bfloat16() else torch.float32
