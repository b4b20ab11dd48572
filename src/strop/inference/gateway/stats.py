"""What the gateway counted since it was made: for the metrics of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stats:
    """Counters that only grow.

    Units:
        model_calls: calls answered with a fresh generation; turns: choices captured from them;
        model_latency_s: seconds those turns took, added up; replayed_calls: retries answered from memory;
        aborted_calls: calls that ended without a turn (client gone, rollout over, engine error);
        refused_calls: calls answered 4xx before any sampling; tool_parse_errors: answers whose tool call
        could not be read; rerendered_prompts: follow-up prompts that could not keep the sampled ids.
    """

    model_calls: int = 0
    turns: int = 0
    model_latency_s: float = 0.0
    replayed_calls: int = 0
    aborted_calls: int = 0
    refused_calls: int = 0
    tool_parse_errors: int = 0
    rerendered_prompts: int = 0
