"""How to sample, and what came out: the words between whoever asks and the engine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum


class FinishReason(StrEnum):
    """Decided by the engine; never guessed from the last token."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """One object for sampler, logprobs, loss and entropy, so that they cannot disagree.

    Units:
        max_tokens: new tokens, at most. `top_k=0` and `top_p=1.0` mean off. `temperature=0` is greedy.
        seed: the same seed, prompt and weights give the same tokens; None draws one.
        top_logprobs: how many of the likeliest tokens are told with each sampled one.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    top_logprobs: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, found {self.max_tokens}")
        if not 0.0 <= self.temperature <= 100.0:
            raise ValueError(f"temperature must lie in [0, 100], found {self.temperature}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must lie in (0, 1], found {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (off) or positive, found {self.top_k}")


Likeliest = tuple[tuple[int, float], ...]
"""Token ids with their logprobs, the likeliest first: of the distribution after temperature, before top-k and
top-p."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What the engine sampled for one request.

    Shapes:
        token_ids, logprobs, policy_versions: (T,) one a sampled token, the end token included when sampled.
        likeliest: (T,) where `top_logprobs` were asked for, else empty.
    Units:
        logprobs: nats, of the distribution that was really sampled from (after temperature, top-k, top-p).
        text: decoded, without special tokens, cut before a stop string.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_versions: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    likeliest: tuple[Likeliest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionChunk:
    """What one engine step added to a completion.

    `text` is what became certain: it never ends inside a character nor holds the start of a stop string.
    The last chunk carries `finish_reason`.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: FinishReason | None = None
    likeliest: tuple[Likeliest, ...] = ()


def seed_of(text: str) -> int:
    """63 bits that depend on the text and on nothing else: the same on every machine and in every run.

    >>> seed_of("42/s1-0-row-r0/0") == seed_of("42/s1-0-row-r0/1")
    False
    """
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
