"""A run that samples ahead, with everything real: the engine samples on while the trainer works beside it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from fakes.command import Strop
from fakes.jobs import write_job
from fakes.run_record import record


def test_steps_are_sampled_while_others_are_learned_from(strop: Strop, tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", rows=12, save_steps=3)
    done = strop("run", job, "--out", tmp_path / "run", "--set", "max_staleness=1", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["steps"] == 6
    metrics = record(tmp_path / "home" / "strop.db", told["job_id"]).metrics
    stale = {
        step: struct.unpack("<d", value)[0]
        for (step, name), value in metrics.items()
        if name == "trajectory/staleness/max"
    }
    assert stale[1] == 0
    # A step has two optimizer updates, and is sampled at most one step ahead.
    assert 0 < max(stale.values()) <= 2
