"""Work -> where its seconds went, by kind of operation: what bounds a rate."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

KINDS: dict[str, tuple[str, ...]] = {
    "linear layers and head": ("aten::mm", "aten::addmm", "aten::linear", "mkldnn::_linear", "aten::addmv"),
    "attention": ("aten::bmm", "aten::baddbmm", "aten::_scaled_dot", "aten::scaled_dot"),
    "softmax, sampling": (
        "aten::_softmax",
        "aten::_log_softmax",
        "aten::cumsum",
        "aten::searchsorted",
        "aten::sort",
        "aten::topk",
        "aten::logsumexp",
        "aten::amax",
        "aten::max",
        "aten::gather",
        "aten::linalg_vecdot",
        "aten::scatter_add_",
    ),
}
"""Prefixes of operator names. What none fits is norms, rotation, activation, copies and the optimizer."""
ELEMENTWISE = "norms, rotation, activation, copies, optimizer"
PYTHON = "Python, and waiting"


def kind_of(operator: str) -> str:
    """
    >>> kind_of("aten::addmm"), kind_of("aten::mul_")
    ('linear layers and head', 'norms, rotation, activation, copies, optimizer')
    """
    for kind, prefixes in KINDS.items():
        if operator.startswith(prefixes):
            return kind
    return ELEMENTWISE


def split(work: Callable[[], object]) -> dict[str, float]:
    """Run `work` under the profiler: seconds by kind, which add up to its wall time.

    Operators of all threads are seen; a kind's seconds are those of its operators less what they called.
    Python is what is left of the wall time, so it holds the profiler's own cost as well.
    """
    every_thread = _ExperimentalConfig(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], experimental_config=every_thread) as recorded:
        start = time.perf_counter()
        work()
        wall = time.perf_counter() - start
    seconds: dict[str, float] = defaultdict(float)
    for entry in recorded.key_averages():
        seconds[kind_of(entry.key)] += entry.self_cpu_time_total / 1e6
    seconds[PYTHON] = max(0.0, wall - sum(seconds.values()))
    return dict(seconds)
