"""What the user asked for -> the dtype this machine should compute in."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch


def working_dtype(train_dtype: str) -> tuple[torch.dtype, str | None]:
    """The dtype of the working weights, and a sentence for the user where it is not the one asked for.

    A processor without bfloat16 instructions emulates them, ten to a hundred times slower than float32: there
    `bfloat16` computes in float32, which is also more exact.
    """
    if train_dtype == "float32":
        return torch.float32, None
    if train_dtype != "bfloat16":
        raise ValueError(f"train_dtype must be 'bfloat16' or 'float32', found {train_dtype!r}")
    if has_fast_bfloat16():
        return torch.bfloat16, None
    return torch.float32, (
        "this processor has no bfloat16 instructions (AVX512_BF16, AMX or ARM BF16) and would emulate "
        "them many times slower: training computes in float32"
    )


@cache
def has_fast_bfloat16() -> bool:
    """Whether bfloat16 matrix products run in hardware. Read from processor flags, so that it never flips."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    processor = Path("/proc/cpuinfo")
    return processor.exists() and " bf16" in processor.read_text(errors="replace")
