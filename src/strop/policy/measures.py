"""What the update saw -> metrics of the step under their registry names. Sums kept as floats; no mean of
means."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from strop.policy.forest import Forest
from strop.policy.loss import kl


class StepMeasures:
    """Collects one step. Values of an update are averaged over the updates; of tokens, over all tokens."""

    def __init__(self, *, with_reference: bool) -> None:
        self._with_reference = with_reference
        self._update: dict[str, float] = {}
        self._updates: list[dict[str, float]] = []
        self._tokens = 0
        self._policy_tokens = 0
        self._entropy = 0.0
        self._old: list[Tensor] = []
        self._behaviour: list[Tensor] = []
        self._seconds: dict[str, float] = {}
        self._stepped = 0
        self._skipped = 0

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._seconds[name] = time.perf_counter() - start

    def at_start(self, forest: Forest, old_E: Tensor, entropies_E: Tensor) -> None:
        """A forest's numbers under the weights of the step's start."""
        rows = forest.sequence_edges_ST[forest.mask_ST]
        self._tokens += len(rows)
        self._entropy += float(entropies_E[rows].sum())
        self._old.append(old_E[rows])
        self._behaviour.append(forest.behaviour_logprobs_ST[forest.mask_ST])

    def add_policy(
        self, forest: Forest, loss: float, metrics: Mapping[str, float], *, num_tokens: int
    ) -> None:
        """A forest's part of the policy loss; its metrics are shares of the `num_tokens` of the update."""
        self._add("actor/loss", loss)
        self._add("actor/pg_loss", loss)
        for name, value in metrics.items():
            self._add(name, value)
        self._add("tokens", forest.num_loss_tokens)
        self._update["num_tokens"] = num_tokens

    def add_reference(
        self, forest: Forest, loss: float, policy_ST: Tensor, reference_ST: Tensor, coefficient: float
    ) -> None:
        self._add("actor/kl_loss", loss)
        self._add("actor/loss", coefficient * loss)
        for kind in ("k1", "k3"):
            self._add(
                f"actor/reference_kl_{kind}", float(kl(kind, policy_ST, reference_ST)[forest.mask_ST].sum())
            )

    def end_update(self, *, stepped: bool, grad_norm: float) -> None:
        """Close an optimizer update, whether it was applied or not."""
        update, self._update = self._update, {}
        tokens, num_tokens = update.pop("tokens"), update.pop("num_tokens")
        # Packs without a gradient clip nothing, but how far their tokens drifted is not known.
        update["actor/ppo_kl"] *= num_tokens / tokens
        for kind in ("k1", "k3"):
            if self._with_reference:
                update[f"actor/reference_kl_{kind}"] /= tokens
        self._updates.append({**update, "actor/grad_norm": grad_norm})
        self._stepped += stepped
        self._skipped += not stepped

    def values(self) -> dict[str, float]:
        names = ["loss", "pg_loss", "ppo_kl", "pg_clipfrac", "pg_clipfrac_lower", "grad_norm"]
        if self._with_reference:
            names += ["kl_loss", "reference_kl_k1", "reference_kl_k3"]
        return {
            **{
                f"actor/{name}": _mean([update[f"actor/{name}"] for update in self._updates])
                for name in names
            },
            "actor/entropy": self._entropy / self._tokens if self._tokens else math.nan,
            "actor/num_updates": float(self._stepped),
            "actor/skipped_updates": float(self._skipped),
            **mismatch(self._old, self._behaviour),
            **self._seconds,
        }

    def _add(self, name: str, value: float) -> None:
        self._update[name] = self._update.get(name, 0.0) + value


def mismatch(old: list[Tensor], behaviour: list[Tensor]) -> dict[str, float]:
    """How far the engine's logprobs of its own tokens are from the learner's.

    A behaviour logprob that is not finite is left out. With x = old - behaviour and w = e^x.
    """
    delta = torch.cat(old).double() - torch.cat(behaviour).double() if old else torch.empty(0).double()
    delta = delta[delta.isfinite()]
    if not len(delta):
        names = ("logprob_diff_mean", "logprob_diff_max", "kl_k1", "kl_k3", "effective_sample_size")
        return {f"mismatch/{name}": math.nan for name in names}
    weights = delta.clamp(-20, 20).exp()
    return {
        "mismatch/logprob_diff_mean": float(delta.abs().mean()),
        "mismatch/logprob_diff_max": float(delta.abs().max()),
        "mismatch/kl_k1": float(-delta.mean()),
        "mismatch/kl_k3": float((weights - 1 - delta).mean()),
        "mismatch/effective_sample_size": float(weights.sum() ** 2 / (len(weights) * (weights**2).sum())),
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan
