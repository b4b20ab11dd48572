"""This machine's processor -> what it can do that changes which number format is fast.

Reads what the system says of it, not torch, which needs no second opinion; imports nothing of ours.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")
_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Flags of x86 processors, and the one of ARM's, that come with bfloat16 products."""


@cache
def has_fast_bfloat16() -> bool:
    """Whether bfloat16 matrix products run in hardware; emulated they are many times slower than float32.
    False where the system does not say."""
    return bool(_BFLOAT16 & _flags(_CPU_INFO.read_text(errors="replace"))) if _CPU_INFO.exists() else False


def _flags(text: str) -> set[str]:
    """The flags in the text of `/proc/cpuinfo`: x86 calls them so, ARM calls them features.

    >>> sorted(_flags("model name\\t: x\\nflags\\t\\t: fpu avx2\\n\\nFeatures\\t: fp bf16\\n"))
    ['avx2', 'bf16', 'fp', 'fpu']
    """
    found: set[str] = set()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            found.update(value.split())
    return found
