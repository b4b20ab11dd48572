"""A class's name, or a data set's -> the public benchmark that it is: one table, a declaration each.

Another benchmark is another `Benchmark`: how a row is asked, and what program its answer becomes.
"""

from __future__ import annotations

from strop_sandbox.benchmarks.benchmark import Benchmark
from strop_sandbox.benchmarks.cruxeval import CRUX_EVAL
from strop_sandbox.benchmarks.functions import BIG_CODE_BENCH, EVO_EVAL, HUMAN_EVAL, MBPP, MHPP
from strop_sandbox.benchmarks.inserted import AIDER, MBXP
from strop_sandbox.benchmarks.livecodebench import LIVE_CODE_BENCH
from strop_sandbox.benchmarks.multiple import MULTIPLE
from strop_sandbox.benchmarks.naturalcodebench import NATURAL_CODE_BENCH
from strop_sandbox.benchmarks.palmath import PAL_MATH
from strop_sandbox.benchmarks.repobench import REPO_BENCH_C, REPO_BENCH_P

_ALL = (
    *(MBXP, MULTIPLE, BIG_CODE_BENCH, EVO_EVAL, HUMAN_EVAL, MHPP, MBPP, LIVE_CODE_BENCH, CRUX_EVAL),
    *(PAL_MATH, NATURAL_CODE_BENCH, AIDER, REPO_BENCH_C, REPO_BENCH_P),
)
BENCHMARKS: dict[str, Benchmark] = {one.name: one for one in _ALL}
"""By the name of their class. A data set is of the first whose pattern fits: `humaneval-cpp` of MultiPL-E."""


def benchmark_called(dataset: str) -> Benchmark | None:
    """The benchmark whose file this is, by its name."""
    return next((one for one in _ALL if one.is_called(dataset)), None)
