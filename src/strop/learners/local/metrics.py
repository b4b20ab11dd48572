"""What the update saw -> metrics of the step under their registry names. Sums kept as floats; no mean of
means."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from strop.learners.local.packed_trees import PackedTrees
from strop.learners.losses.correction import mismatch
from strop.learners.losses.policy import kl


class StepMeasures:
    """Collects one step. Values of an update are averaged over the updates; of tokens, over all tokens."""

    def __init__(self) -> None:
        self._update: dict[str, float] = {}
        self._updates: list[dict[str, float]] = []
        self._tokens = 0
        self._entropy = 0.0
        self._old: list[Tensor] = []
        self._behaviour: list[Tensor] = []
        self._masked: list[float] = []
        self._seconds: dict[str, float] = {}
        self._counts = dict.fromkeys(("actor/num_updates", "actor/skipped_updates", "actor/nan_tokens"), 0.0)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._seconds[name] = time.perf_counter() - start

    def at_start(self, forest: PackedTrees, old_E: Tensor, entropies_E: Tensor) -> None:
        """A forest's numbers under the weights of the step's start."""
        rows = forest.sequence_edges_ST[forest.mask_ST]
        self._tokens += len(rows)
        self._entropy += float(entropies_E[rows].sum())
        self._old.append(old_E[rows])
        self._behaviour.append(forest.behaviour_logprobs_ST[forest.mask_ST])

    def add_loss(self, metrics: Mapping[str, float], *, num_tokens: int) -> None:
        """A forest's part of the losses and shares of an update; `num_tokens` of the forest's own count."""
        for name, value in metrics.items():
            self._add(name, value)
        self._add("tokens", num_tokens)

    def add_drift(self, mask_ST: Tensor, policy_ST: Tensor, reference_ST: Tensor) -> None:
        """How far a forest's tokens have come from the reference."""
        mask_ST = mask_ST & torch.isfinite(policy_ST) & torch.isfinite(reference_ST)
        if not mask_ST.any():
            return
        self._add("drift_tokens", int(mask_ST.sum()))
        for kind in ("k1", "k3"):
            values_ST = kl(kind, policy_ST, reference_ST)
            self._add(f"actor/reference_kl_{kind}", float(values_ST[mask_ST].sum()))

    def add_nan_tokens(self, count: int) -> None:
        self._counts["actor/nan_tokens"] += count

    @property
    def has_drift(self) -> bool:
        return any("actor/reference_kl_k1" in update for update in (*self._updates, self._update))

    def add_rejection(self, masked_ratio: float) -> None:
        """The share of an update's computed tokens that rejection dropped."""
        self._masked.append(masked_ratio)

    def end_update(self, *, stepped: bool, grad_norm: float, num_tokens: int) -> None:
        """Close an optimizer update of `num_tokens` tokens, whether it was applied or not."""
        update, self._update = self._update, {}
        tokens, drift_tokens = update.pop("tokens"), update.pop("drift_tokens", 0)
        self._counts["actor/nan_tokens"] += update.pop("actor/nan_tokens")
        # Packs without a gradient clip nothing, but how far their tokens drifted is not known.
        update["actor/ppo_kl"] *= num_tokens / tokens if tokens else math.nan
        for kind in ("k1", "k3"):
            if drift_tokens:
                update[f"actor/reference_kl_{kind}"] /= drift_tokens
        self._updates.append({**update, "actor/grad_norm": grad_norm})
        self._counts["actor/num_updates" if stepped else "actor/skipped_updates"] += 1

    def values(self) -> dict[str, float]:
        """Each metric that at least one update has, averaged over those; the usual ones always."""
        names = [*_ALWAYS, *(name for update in self._updates for name in update)]
        return {
            **{
                name: _mean([update[name] for update in self._updates if name in update])
                for name in dict.fromkeys(names)
            },
            "actor/entropy": self._entropy / self._tokens if self._tokens else math.nan,
            "mismatch/masked_ratio": _mean(self._masked),
            **self._counts,
            **mismatch(self._old, self._behaviour),
            **self._seconds,
        }

    def _add(self, name: str, value: float) -> None:
        self._update[name] = self._update.get(name, 0.0) + value


_ALWAYS = (
    "actor/loss",
    "actor/pg_loss",
    "actor/ppo_kl",
    "actor/pg_clipfrac",
    "actor/pg_clipfrac_lower",
    "actor/grad_norm",
    "mismatch/truncated_ratio",
)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan
