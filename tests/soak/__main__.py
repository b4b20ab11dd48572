"""`make soak`: every kind of bad luck, heavy; the figures go to docs/log.md under today's date.

`make soak ARGS="--share 0.2"` does a fifth of it; `--no-log` only prints.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

from soak.lives import live
from soak.outside import kill_from_outside
from soak.sandbox import soak_sandbox
from soak.saving import kill_while_saving

LOG = Path(__file__).parents[2] / "docs" / "log.md"
SAVING_KILLS, LIVES, OUTSIDE_KILLS, SANDBOX_RUNS = 50, 20, 40, 20_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--share", type=float, default=1.0, help="how much of it to do, 0 to 1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-log", action="store_true")
    given = parser.parse_args()
    lines = []
    for times, soak in (
        (SAVING_KILLS, _saving),
        (LIVES, _lives),
        (OUTSIDE_KILLS, _outside),
        (SANDBOX_RUNS, _sandbox),
    ):
        began = time.monotonic()
        text = soak(max(1, round(times * given.share)), given.seed)
        lines.append(f"* {text} ({time.monotonic() - began:.0f} s)")
        print(lines[-1], flush=True)
    if not given.no_log:
        _log(lines, given.share, given.seed)


def _saving(kills: int, seed: int) -> str:
    found = kill_while_saving(kills, seed=seed)
    assert found.whole == found.kills, found
    parts = found.left[".part"]
    return (
        f"SIGKILL at {found.kills} random moments of saving: the newest whole checkpoint was found "
        f"{found.whole} times; {parts} kills left a part, and a part was never taken for a checkpoint"
    )


def _lives(kills: int, seed: int) -> str:
    lived = live(kills, seed=seed)
    reached = ", ".join(map(str, lived.reached))
    return (
        f"a run of {lived.steps} steps killed {lived.kills} times at any moment and started again with "
        f"`--resume auto`: weights, optimizer, metrics and {lived.tokens} sampled tokens bit for bit those "
        f"of the run left alone; {lived.lives_s:.0f} s against {lived.straight_s:.0f}; steps saved after "
        f"each life: {reached}"
    )


def _outside(kills: int, seed: int) -> str:
    survived = kill_from_outside(kills, seed=seed)
    return (
        f"{survived.kills} workers killed during {survived.steps} steps, {survived.reapers} of them by "
        f"their reaper: {survived.retried} of {survived.rollouts} rollouts took another attempt, "
        f"{survived.failed} failed; nothing was counted twice, no process remained"
    )


def _sandbox(runs: int, seed: int) -> str:
    soaked = soak_sandbox(runs)
    assert soaked.wrong == 0, soaked
    grown = soaked.grown()
    resident = [held["resident_kib"] / 1024 for held in (soaked.first, soaked.last)]
    del grown["resident_kib"]
    assert not any(grown.values()), soaked
    return (
        f"{soaked.runs} programs of ten kinds in a sandbox, {soaked.runs / soaked.seconds:.0f} a second: "
        "every verdict as alone; descriptors, processes, control groups and files as after the first part, "
        f"memory {resident[0]:.0f} MiB then and {resident[1]:.0f} MiB at the end"
    )


def _log(lines: list[str], share: float, seed: int) -> None:
    part = "" if share == 1.0 else f", {share:g} of the full number"
    head = f"## {datetime.now(UTC):%Y-%m-%d}: soak{part}"
    machine = (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; seed {seed}."
    )
    with LOG.open("a", encoding="utf-8") as log:
        log.write("\n".join(["", head, "", machine, "", *lines, ""]))


if __name__ == "__main__":
    main()
