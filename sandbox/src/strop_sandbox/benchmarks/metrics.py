"""A benchmark -> the source of the function that makes metrics of its results; clients run it themselves."""

from __future__ import annotations

from strop_sandbox.benchmarks.benchmark import Benchmark

_SOURCE = """
def get_metrics(results):
    from math import comb

    right = {}
    for r in results:
        problems = right.setdefault(CATEGORY, {})
        problems[r.id] = problems.get(r.id, 0) + bool(r.accepted)

    def pass_at(k, num_right):
        return 1 - comb(repeats - num_right, k) / comb(repeats, k)

    return {
        f"{category}/Pass@k={k}": sum(pass_at(k, one) for one in problems.values()) / len(problems)
        for category, problems in right.items()
        for k in k_targets
        if k <= repeats
    }
"""
"""`repeats` (answers a problem) and `k_targets` are names that its caller gives. Pass@k: arXiv:2107.03374."""


def metrics_function(benchmark: Benchmark | None) -> str | None:
    """None where the benchmark has no categories of its own."""
    if benchmark is None or not benchmark.category:
        return None
    return _SOURCE.replace("CATEGORY", benchmark.category)
