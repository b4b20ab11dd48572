"""What the updates of a step found -> metrics of the step under their registry names. No mean of means."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from strop.rl.correction import mismatch
from strop.schema.batch import ForwardResult, OptimStep, Pack


class UpdateMetrics:
    """Collects one step. Values of an update are averaged over the updates; of tokens, over all tokens."""

    def __init__(self) -> None:
        self._updates: list[dict[str, float]] = []
        self._tokens = 0
        self._entropy = 0.0
        self._pairs: list[tuple[float, float]] = []
        self._masked: list[float] = []
        self._seconds: dict[str, float] = {}
        self._counts = dict.fromkeys(("actor/num_updates", "actor/skipped_updates", "actor/nan_tokens"), 0.0)

    @contextmanager
    def timed(self, name: str) -> Generator[None]:
        start = time.perf_counter()
        yield
        self._seconds[name] = time.perf_counter() - start

    def at_start(self, packs: Sequence[Pack], result: ForwardResult) -> None:
        """What a pass found under the weights of the step's start."""
        self._entropy += result.entropy
        sequences = (sequence for pack in packs for sequence in pack.sequences)
        for sequence, old in zip(sequences, result.logprobs, strict=True):
            pairs = zip(old, sequence.sampled_behaviour, strict=True)
            known = [pair for pair in pairs if math.isfinite(pair[1])]
            self._tokens += len(known)
            self._pairs += known

    @property
    def has_drift(self) -> bool:
        """Whether an update of the step was compared with the reference."""
        return any("actor/reference_kl_k1" in update for update in self._updates)

    def add_nan_tokens(self, count: int) -> None:
        self._counts["actor/nan_tokens"] += count

    def add_rejection(self, masked_ratio: float) -> None:
        """The share of an update's computed tokens that rejection dropped."""
        self._masked.append(masked_ratio)

    def add_update(self, result: ForwardResult, step: OptimStep, *, num_tokens: float) -> None:
        """An optimizer update of `num_tokens` tokens, whether it was applied or not."""
        update = dict(result.metrics)
        tokens, drift_tokens = update.pop("tokens"), update.pop("drift_tokens", 0)
        self._counts["actor/nan_tokens"] += update.pop("actor/nan_tokens")
        # Packs without a gradient clip nothing, but how far their tokens drifted is not known.
        update["actor/ppo_kl"] *= num_tokens / tokens if tokens else math.nan
        for kind in ("k1", "k3"):
            if drift_tokens:
                update[f"actor/reference_kl_{kind}"] /= drift_tokens
        self._updates.append({**update, "actor/grad_norm": step.grad_norm})
        self._counts["actor/num_updates" if step.applied else "actor/skipped_updates"] += 1

    def values(self) -> dict[str, float]:
        """Each metric that at least one update has, averaged over those; the usual ones always."""
        names = [*_ALWAYS, *(name for update in self._updates for name in update)]
        return {
            **{
                name: mean([update[name] for update in self._updates if name in update])
                for name in dict.fromkeys(names)
            },
            "actor/entropy": self._entropy / self._tokens if self._tokens else math.nan,
            "mismatch/masked_ratio": mean(self._masked),
            **self._counts,
            **mismatch(self._pairs),
            **self._seconds,
        }


_ALWAYS = (
    "actor/loss",
    "actor/pg_loss",
    "actor/ppo_kl",
    "actor/pg_clipfrac",
    "actor/pg_clipfrac_lower",
    "actor/grad_norm",
    "mismatch/truncated_ratio",
)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
