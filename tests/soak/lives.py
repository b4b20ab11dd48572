"""A run that is killed again and again, at any moment, and started again -> the same run, bit for bit.

`python -m soak.lives 20`. Each life is `strop run --out RUN --resume auto`, as a supervisor would start it.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from fakes.jobs import write_job
from fakes.run_record import checkpoint_bits, record
from fakes.running import Running, processes_with
from strop.schema.job import JobStatus
from strop.store.database import open_database
from strop.store.jobs import list_jobs

ROWS = 28
"""Seven steps an epoch, fourteen in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """`seconds` of the straight run and of all lives; `reached`: the step each life had saved last."""

    kills: int
    reached: tuple[int, ...]
    straight_s: float
    lives_s: float
    steps: int
    tokens: int


def live(kills: int, *, seed: int = 0) -> Lived:
    """Raises AssertionError where the killed run differs in a bit, or leaves a process or a RUNNING job."""
    root = Path(tempfile.mkdtemp(prefix="strop-soak-"))
    try:
        return _live(root, kills, random.Random(seed))
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _live(root: Path, kills: int, chance: random.Random) -> Lived:
    job = write_job(root / "job", rows=ROWS, save_steps=1)
    home, mark = root / "home", f"SOAK={root}"
    began = time.monotonic()
    whole = _to_the_end(job, root / "straight", home, root)
    straight_s = time.monotonic() - began
    reached: list[int] = []
    began = time.monotonic()
    for _ in range(kills):
        with Running("run", job, "--out", root / "run", "--resume", "auto", home=home, SOAK=str(root)) as one:
            time.sleep(chance.uniform(0.0, straight_s))
            if one.process.poll() is not None:
                assert one.process.returncode == 0, one.text
            else:
                one.kill()
        reached.append(_newest_step(root / "run"))
        _gone(mark)
    told = _to_the_end(job, root / "run", home, root)
    lives_s = time.monotonic() - began
    _same(root, home, whole, told)
    return Lived(
        kills=kills,
        reached=tuple(reached),
        straight_s=straight_s,
        lives_s=lives_s,
        steps=told["steps"],
        tokens=told["tokens_sampled"],
    )


def _to_the_end(job: Path, out: Path, home: Path, root: Path) -> dict:
    with Running("run", job, "--out", out, "--resume", "auto", "--json", home=home, SOAK=str(root)) as one:
        assert one.end(1200) == 0, one.text
        return json.loads(one.text[one.text.index("{\n") :])


def _same(root: Path, home: Path, whole: dict, told: dict) -> None:
    database = home / "strop.db"
    opened = open_database(f"sqlite:///{database}")
    with opened.read() as session:
        jobs = list_jobs(session, limit=1000).items
    opened.close()
    lives = [one for one in reversed(jobs) if one.job_id != whole["job_id"]]
    assert {one.status for one in lives} <= {JobStatus.FAILED, JobStatus.SUCCEEDED}
    one, two = record(database, whole["job_id"]), record(database, *(life.job_id for life in lives))
    assert two.metrics == one.metrics
    assert two.turns == one.turns
    name = f"step-{whole['steps']:06d}"
    left, right = (checkpoint_bits(root / run / "checkpoints" / name) for run in ("straight", "run"))
    differing = sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))
    assert differing == [], [
        (key, str(left.get(key))[:2000], str(right.get(key))[:2000]) for key in differing
    ]


def _newest_step(run: Path) -> int:
    shelf = run / "checkpoints"
    return max((int(one.name[-6:]) for one in shelf.glob("step-*")), default=0)


def _gone(mark: str) -> None:
    """Workers notice the death of the run by themselves: wait until they have."""
    until = time.monotonic() + 20
    while left := processes_with(mark):
        assert time.monotonic() < until, left
        time.sleep(0.05)


if __name__ == "__main__":
    print(live(int(sys.argv[1])))
