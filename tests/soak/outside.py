"""Function workers and their reapers killed at random moments of a run -> it goes on, and counts right.

`python -m soak.outside 30`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fakes.jobs import write_job
from fakes.running import Running, processes_with, workers_of
from strop.store.database import open_database
from strop.store.trajectories import list_trajectories

ROWS = 40
PAUSE_S = 8.0
"""Between two kills, at most. A worker that is killed while it starts, three times in a row, is given up for
half a minute: that is more than bad luck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survived:
    """`retried`: rollouts that needed another attempt; `failed`: those that all attempts were taken from."""

    kills: int
    reapers: int
    steps: int
    rollouts: int
    retried: int
    failed: int


def kill_from_outside(kills: int, *, seed: int = 0) -> Survived:
    """Raises AssertionError where the run ends, counts a rollout twice, or leaves a process."""
    root = Path(tempfile.mkdtemp(prefix="strop-soak-"))
    try:
        return _kill(root, kills, random.Random(seed))
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _kill(root: Path, kills: int, chance: random.Random) -> Survived:
    job, home, mark = write_job(root / "job", rows=ROWS, save_steps=99), root / "home", f"SOAK={root}"
    long = (
        "--set",
        "n_epochs=20",
        "--set",
        "max_attempts=9",
        "--set",
        f"max_steps={max(4, 3 * kills)}",
        "--json",
    )
    done = reapers = 0
    with Running("run", job, *long, home=home, SOAK=str(root)) as run:
        run.says("step ")
        while done < kills and run.process.poll() is None:
            time.sleep(chance.uniform(0.0, PAUSE_S))
            pairs = list(workers_of(mark).items())
            if not pairs:
                continue
            reaper, worker = chance.choice(pairs)
            at_reaper = chance.random() < 0.5
            try:
                os.kill(reaper if at_reaper else worker, signal.SIGKILL)
            except ProcessLookupError:
                continue
            done, reapers = done + 1, reapers + at_reaper
        assert run.end(1200) == 0, run.text
        told, _ = json.JSONDecoder().raw_decode(run.text[run.text.index("{\n") :])
    assert processes_with(mark) == {}
    opened = open_database(f"sqlite:///{home}/strop.db")
    with opened.read() as session:
        items = list_trajectories(session, told["job_id"], limit=1_000_000).items
    opened.close()
    counted = Counter((one.split, one.step) for one in items)
    assert {count for (split, _), count in counted.items() if split == "train"} == {16}
    assert told["tokens_sampled"] == sum(one.num_sampled_tokens for one in items)
    return Survived(
        kills=done,
        reapers=reapers,
        steps=told["steps"],
        rollouts=len(items),
        retried=sum(one.trajectory.attempts > 1 for one in items),
        failed=sum(one.trajectory.status.value == "FAILED" for one in items),
    )


if __name__ == "__main__":
    print(kill_from_outside(int(sys.argv[1])))
