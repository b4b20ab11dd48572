"""Runs of a small policy that learns, healthy and with planted faults -> how the diagnosis did on them.

`python -m soak.diagnosing 50 3`: healthy seeds, and seeds of each fault, two runs at a time. Prints a line
for each run that was blamed or whose fault was not found, and the totals.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from fakes.planted import PLANTED, onset
from fakes.tiny_world import World
from strop.diagnosis.doctor import Doctor

HEALTHY_STEPS, PLANTED_STEPS = 60, 45
AT_MOST_LATE = 10
MAX_FALSE = 0.05
PROCESSES = 2

Told = list[dict[str, float]]


def examined(world: World, steps: int) -> tuple[Told, dict[str, int]]:
    """The run's curves, and the step at which each rule first held."""
    doctor, told, first = Doctor("ft-1", world.algorithm), [], {}
    for step, values, groups in world.steps(steps):
        doctor.trajectories(step, groups)
        doctor.metrics(step, values)
        for finding in doctor.look(step):
            first.setdefault(finding.rule, step)
        told.append(values)
    return told, first


def healthy(seed: int) -> dict[str, int]:
    """What a run that learns was blamed for, and since when: nothing, it should be."""
    return examined(World(seed=seed), HEALTHY_STEPS)[1]


def planted(rule: str, seed: int) -> tuple[int | None, int | None]:
    """From which step the fault could be seen (None: this seed does not show it) and when it was found."""
    make, what = PLANTED[rule]
    told, first = examined(make(seed), PLANTED_STEPS)
    try:
        return onset(what, told), first.get(rule)
    except StopIteration:
        return None, first.get(rule)


def main(num_healthy: int, num_planted: int) -> None:
    began = time.monotonic()
    plants = [(rule, seed) for rule in PLANTED for seed in range(num_planted)]
    with ProcessPoolExecutor(PROCESSES) as pool:
        blamed = dict(enumerate(pool.map(healthy, range(num_healthy))))
        found = dict(
            zip(plants, pool.map(planted, *zip(*plants, strict=True)), strict=True) if plants else ()
        )
    false = {seed: first for seed, first in blamed.items() if first}
    for seed, first in false.items():
        print(f"healthy seed {seed}: {first}")
    late: list[int] = []
    for (rule, seed), (seen_from, at) in found.items():
        if seen_from is None:
            print(f"{rule} seed {seed}: the fault did not show")
        elif at is None or at > seen_from + AT_MOST_LATE:
            print(f"{rule} seed {seed}: from step {seen_from}, found at {at}")
        else:
            late.append(max(0, at - seen_from))
    showed = sum(seen_from is not None for seen_from, _ in found.values())
    counted = Counter(rule for first in false.values() for rule in first)
    print(f"healthy: {len(false)} of {num_healthy} blamed {dict(counted)}")
    print(f"planted: {len(late)} of {showed} found within {AT_MOST_LATE} steps; by steps {sorted(late)}")
    print(f"{time.monotonic() - began:.0f} s")
    assert len(false) <= MAX_FALSE * num_healthy


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
