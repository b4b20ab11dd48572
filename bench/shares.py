"""Shares of the machine: how much of its matrix rate sampling and update reach, and what takes the rest."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from bench.contender import Answer, Contender
from bench.figures import table, verdict
from bench.workload import NEW_TOKENS, NUM_PROMPTS, NUM_ROLLOUTS, Work

# A parameter and token: forward only; forward and backward.
_FLOP = {"sampling": 2, "update": 6}
_TARGETS = {"sampling": 0.4, "update": 0.6}


def measure(work: Work, *, rounds: int, log_folder: Path) -> str:
    """Matrix rate and step take turns in one process, then a profiled pass. Returns Markdown."""
    settings = {
        "label": "Strop shares",
        "model": work.model,
        "prompts": work.texts[:NUM_PROMPTS],
        "rollouts": NUM_ROLLOUTS,
        "new_tokens": NEW_TOKENS,
    }
    with Contender("strop_shares", settings, log_folder=log_folder) as strop:
        facts = strop.facts
        rates: list[dict[str, float]] = []
        steps: list[Answer] = []
        for _ in range(rounds):
            rates.append(strop.run(what="rates")["rates"])
            steps.append(strop.run(what="step"))
            print(f"matrix rate {rates[-1]}, step {steps[-1]['parts']}", flush=True)
        parts = strop.run(what="profile")
    matrix = {dtype: median(rate[dtype] for rate in rates) for dtype in rates[0]}
    return _section(facts, matrix, steps, parts)


def _section(facts: Answer, matrix: dict[str, float], steps: list[Answer], parts: Answer) -> str:
    rates = {
        "sampling": median(step["sampled_tokens"] / step["parts"]["sampling"] for step in steps),
        "update": median(step["update_tokens"] / step["parts"]["update"] for step in steps),
    }
    flops = {name: rate * _FLOP[name] * facts["parameters"] for name, rate in rates.items()}
    rows = [
        [
            name,
            f"{rate:.0f}",
            f"{flops[name] / 1e9:.0f}",
            *(f"{flops[name] / top:.0%}" for top in matrix.values()),
        ]
        for name, rate in rates.items()
    ]
    kinds = sorted({*parts["sampling"], *parts["update"]})
    split = [
        [kind, *(f"{parts[part].get(kind, 0.0) / sum(parts[part].values()):.0%}" for part in rates)]
        for kind in kinds
    ]
    measured = ", ".join(f"{dtype} {rate / 1e9:.0f} GFLOP/s" for dtype, rate in matrix.items())
    best = max(matrix.values())
    return "\n\n".join(
        [
            "### Shares of the machine",
            f"Products of 2048 x 2048 matrices in the same process: {measured}. Sampling counts sampled "
            "tokens x 2 x parameters, the update computed tokens x 6 x parameters:",
            table(["", "tokens/s", "GFLOP/s", *(f"of {dtype}" for dtype in matrix)], rows),
            "\n".join(
                verdict(f"{name} as a share of the faster rate", flops[name] / best, target)
                for name, target in _TARGETS.items()
            ),
            "Where the time goes, by a profiled pass:",
            table(["share of wall time", *rates], split),
        ]
    )
