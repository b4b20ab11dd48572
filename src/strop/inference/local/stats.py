"""What an engine has done since it was made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot.

    Units:
        num_sampled: tokens sampled. num_prefilled: prompt tokens computed (again after new weights).
        num_prefix_hits: prompt tokens whose KV was found in the cache instead.
        busy_s: seconds spent stepping. num_steps: forward passes.
        peak_kv_bytes: most KV held by running sequences at once; kv_bytes: the bound.
    """

    num_requests: int
    num_finished: int
    num_running: int
    num_waiting: int
    num_steps: int
    num_sampled: int
    num_prefilled: int
    num_prefix_hits: int
    busy_s: float
    peak_sequences: int
    peak_kv_bytes: int
    kv_bytes: int
