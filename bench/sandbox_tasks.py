"""A seed -> competition problems with cases, and programs for them that are right, wrong, or crash.

Cases are answered by plain functions here, so that what a sandbox says of a program can be checked.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NUM_CASES = 20
NUM_COMPILED_CASES = 8
"""Of a C++ program: the reference compiles it once a case."""
PATIENCE_S = 120.0
"""Limit of a program whose speed is measured: one that is stopped under load would be answered fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One submission: a program for a problem, and whether it is right."""

    name: str
    language: str
    code: str
    cases: tuple[tuple[str, str], ...]
    accepted: bool

    def body(self) -> dict[str, Any]:
        """As `POST /submit` takes it, of either sandbox."""
        cases = [{"input": {"stdin": stdin}, "output": {"stdout": stdout}} for stdin, stdout in self.cases]
        return {
            "dataset": "bench",
            "id": 1,
            "completion": f"```{self.language}\n{self.code}\n```",
            "config": {
                "dataset_type": "CommonOJDataset",
                "language": self.language,
                "compile_timeout": PATIENCE_S,
                "run_timeout": PATIENCE_S,
                "provided_data": {"test": cases},
                "extra": {},
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`right` and `wrong` are in Python, `cpp` is right, too; `make` gives an input, `solve` its answer."""

    make: Callable[[random.Random], str]
    solve: Callable[[list[int]], str]
    right: str
    wrong: str
    cpp: str = ""


def _numbers(least: int, most: int, top: int) -> Callable[[random.Random], str]:
    def make(dice: random.Random) -> str:
        count = dice.randint(least, most)
        return f"{count}\n{' '.join(str(dice.randint(1, top)) for _ in range(count))}\n"

    return make


def _sums_to(numbers: list[int]) -> str:
    target, coins = numbers[0], (1, 5, 7)
    ways = [1] + [0] * target
    for coin in coins:
        for amount in range(coin, target + 1):
            ways[amount] += ways[amount - coin]
    return str(ways[target])


def _rising(numbers: list[int]) -> str:
    lengths: list[int] = []
    values = numbers[1:]
    for index, value in enumerate(values):
        lengths.append(1 + max((lengths[i] for i in range(index) if values[i] < value), default=0))
    return str(max(lengths))


def _best_part(numbers: list[int]) -> str:
    values = [value - 500 for value in numbers[1:]]
    return str(max(sum(values[i:j]) for i in range(len(values)) for j in range(i + 1, len(values) + 1)))


_READ = "import sys\nn, *a = map(int, sys.stdin.read().split())\n"
_HEADERS = "".join(
    f"#include <{name}>\n" for name in ("algorithm", "climits", "iostream", "numeric", "vector")
)
_CPP = f"{_HEADERS}using namespace std;\nint main() {{ int n; cin >> n; vector<long long> a(n);"
_CPP_ALL = f"{_CPP} for (auto &x : a) cin >> x; "

PROBLEMS: dict[str, Problem] = {
    "sum": Problem(
        make=_numbers(1, 50, 1000),
        solve=lambda numbers: str(sum(numbers[1:])),
        right=f"{_READ}print(sum(a))",
        wrong=f"{_READ}print(sum(a) if n < 25 else sum(a) - 1)",
        cpp=f"{_CPP_ALL} cout << accumulate(a.begin(), a.end(), 0LL) << endl; }}",
    ),
    "sorted": Problem(
        make=_numbers(1, 60, 99),
        solve=lambda numbers: " ".join(map(str, sorted(numbers[1:]))),
        right=f"{_READ}print(*sorted(a))",
        wrong=f"{_READ}print(*sorted(set(a)))",
        cpp=f"{_CPP_ALL} sort(a.begin(), a.end()); for (auto x : a) cout << x << ' '; cout << endl; }}",
    ),
    "coins": Problem(
        make=lambda dice: f"{dice.randint(1, 400)}\n",
        solve=_sums_to,
        right=(
            "n = int(input())\nw = [1] + [0] * n\nfor c in (1, 5, 7):\n"
            "    for s in range(c, n + 1):\n        w[s] += w[s - c]\nprint(w[n])"
        ),
        wrong="n = int(input())\nprint(n // 5 + 1)",
    ),
    "rising": Problem(
        make=_numbers(5, 60, 1000),
        solve=_rising,
        right=(
            f"{_READ}import bisect\nt = []\nfor x in a:\n    i = bisect.bisect_left(t, x)\n"
            "    t[i:i + 1] = [x]\nprint(len(t))"
        ),
        wrong=f"{_READ}print(len(set(a)))",
        cpp=(
            f"{_CPP_ALL} vector<long long> t; for (auto x : a) {{"
            " auto i = lower_bound(t.begin(), t.end(), x); if (i == t.end()) t.push_back(x); else *i = x; }"
            " cout << t.size() << endl; }"
        ),
    ),
    "best part": Problem(
        make=_numbers(2, 40, 1000),
        solve=_best_part,
        right=(
            f"{_READ}best = here = -10**9\nfor x in a:\n    x -= 500\n    here = max(here + x, x)\n"
            "    best = max(best, here)\nprint(best)"
        ),
        wrong=f"{_READ}raise ValueError(a)",
        cpp=(
            f"{_CPP_ALL} long long b = LLONG_MIN, h = -1e9; for (auto x : a) {{"
            " h = max(h + x - 500, x - 500); b = max(b, h); } cout << b << endl; }"
        ),
    ),
}


def python_tasks(copies: int, seed: int = 0) -> list[Task]:
    """Of each problem: `copies` right programs and half as many wrong ones, mixed."""
    dice = random.Random(seed)
    tasks: list[Task] = []
    for name, problem in PROBLEMS.items():
        for number in range(copies + copies // 2):
            right = number < copies
            code = problem.right if right else problem.wrong
            tasks.append(_task(name, problem, "python", code, NUM_CASES, dice, accepted=right))
    dice.shuffle(tasks)
    return tasks


def compiled_tasks(copies: int, seed: int = 0) -> list[Task]:
    """Right C++ programs."""
    dice = random.Random(seed)
    return [
        _task(name, problem, "cpp", problem.cpp, NUM_COMPILED_CASES, dice, accepted=True)
        for name, problem in PROBLEMS.items()
        if problem.cpp
        for _ in range(copies)
    ]


def _task(
    name: str,
    problem: Problem,
    language: str,
    code: str,
    num_cases: int,
    dice: random.Random,
    *,
    accepted: bool,
) -> Task:
    inputs = [problem.make(dice) for _ in range(num_cases)]
    cases = tuple((text, problem.solve(list(map(int, text.split()))) + "\n") for text in inputs)
    return Task(name=name, language=language, code=code, cases=cases, accepted=accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A run whose verdict load could change; `expect` is what it comes to alone."""

    code: str
    expect: str
    limits: dict[str, Any]


def counting(loops: int) -> str:
    """A program that counts up so often."""
    return f"x = 0\nfor i in range({loops}): x += i\nprint('done')"


def probes(loops: int) -> list[Probe]:
    """Near their limits on either side; `loops` are those that take this machine 0.5 s of its processor."""
    return [
        Probe(code=counting(loops), expect="Success", limits={"run_timeout": 1.0}),
        Probe(code="import time; time.sleep(0.6)", expect="Success", limits={"run_timeout": 1.0}),
        Probe(code="while True: pass", expect="TimeLimitExceeded", limits={"run_timeout": 0.5}),
        Probe(code="import time; time.sleep(30)", expect="TimeLimitExceeded", limits={"run_timeout": 0.5}),
        Probe(code="print(1)", expect="Success", limits={"run_timeout": 0.5}),
        Probe(code="x = bytearray(600 << 20)", expect="Failed", limits={"memory_limit_MB": 300}),
    ]
