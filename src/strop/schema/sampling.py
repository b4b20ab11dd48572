"""How to sample, and what came out: the words between whoever asks and the engine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-20, 100.0
"""Between 0, which is greedy, and the lower one, logits divided by it may leave what float32 can hold. Some
clients write 1e-8 for greedy."""

MIN_TOP_P = 1e-30
MOST_TOKENS = 2**31 - 1

MIN_TRAINED_TEMPERATURE = 0.01
"""The loss divides by it, too, and its gradient with it."""


class FinishReason(StrEnum):
    """Decided by the engine; never guessed from the last token."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


def checked_temperature(value: float) -> float:
    """The same value.

    Raises:
        ValueError: what is sampled at it would be noise, or nothing.
    """
    if value != 0 and not MIN_TEMPERATURE <= value <= MAX_TEMPERATURE:
        raise ValueError(
            f"temperature must be 0 (greedy) or lie in [{MIN_TEMPERATURE:g}, {MAX_TEMPERATURE:g}], found "
            f"{value}"
        )
    return value


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
        if not 1 <= self.max_tokens <= MOST_TOKENS:
            raise ValueError(f"max_tokens must lie in [1, {MOST_TOKENS}], found {self.max_tokens}")
        checked_temperature(self.temperature)
        if not MIN_TOP_P <= self.top_p <= 1.0:
            raise ValueError(f"top_p must lie in [{MIN_TOP_P:g}, 1], found {self.top_p}")
        if not 0 <= self.top_k <= MOST_TOKENS:
            raise ValueError(f"top_k must lie in [0, {MOST_TOKENS}], 0 is off; found {self.top_k}")
        if self.seed is not None and not -(2**63) <= self.seed < 2**64:
            raise ValueError(f"seed must have at most 64 bits, found {self.seed}")
        if not 0 <= self.top_logprobs <= MOST_TOKENS:
            raise ValueError(f"top_logprobs must lie in [0, {MOST_TOKENS}], found {self.top_logprobs}")


TopLogprobs = tuple[tuple[int, float], ...]
"""Token ids with their logprobs, the likeliest first: of the distribution after temperature, before top-k and
top-p."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What the engine sampled for one request.

    Shapes:
        token_ids, logprobs, policy_versions: (T,) one a sampled token, the end token included when sampled.
        top_logprobs: (T,) where `top_logprobs` were asked for, else empty.
    Units:
        logprobs: nats, of the distribution that was really sampled from (after temperature, top-k, top-p).
        text: decoded, without special tokens, cut before a stop string.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_versions: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    top_logprobs: tuple[TopLogprobs, ...] = ()


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
    top_logprobs: tuple[TopLogprobs, ...] = ()


def seed_of(text: str) -> int:
    """63 bits that depend on the text and on nothing else: the same on every machine and in every run.

    >>> seed_of("42/s1-0-row-r0/0") == seed_of("42/s1-0-row-r0/1")
    False
    """
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
