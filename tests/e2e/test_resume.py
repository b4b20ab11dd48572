"""Six steps straight are three, SIGKILL, three: bit for bit, through the command with real workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes.command import Strop
from fakes.jobs import write_job
from fakes.run_record import checkpoint_bits, record
from fakes.running import Running
from strop.schema.job import JobStatus
from strop.store.database import open_database
from strop.store.jobs import list_jobs


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Three steps an epoch: the kill comes at an epoch's edge."""
    return write_job(tmp_path / "job", rows=12, save_steps=3)


def test_six_steps_are_three_a_kill_and_three_bit_for_bit(job: Path, strop: Strop, tmp_path: Path) -> None:
    straight = strop("run", job, "--out", tmp_path / "straight", "--json")
    assert straight.returncode == 0, straight.stderr
    whole = json.loads(straight.stdout)
    with Running("run", job, "--out", tmp_path / "halves", home=tmp_path / "home") as half:
        half.says("checkpoint of step 3")
        half.kill()
    rest = strop("run", job, "--resume", tmp_path / "halves", "--json")
    assert rest.returncode == 0, rest.stderr
    told = json.loads(rest.stdout)
    assert "is now FAILED" in rest.stderr
    assert (whole["steps"], told["steps"]) == (6, 6)
    for key in ("validation", "tokens_sampled", "tokens_trained"):
        assert told[key] == whole[key]

    database = tmp_path / "home" / "strop.db"
    opened = open_database(f"sqlite:///{database}")
    with opened.read() as session:
        jobs = {one.job_id: one for one in list_jobs(session).items}
    opened.close()
    (killed,) = set(jobs) - {whole["job_id"], told["job_id"]}
    assert jobs[killed].status is JobStatus.FAILED
    assert "ended without a word" in (jobs[killed].error or "")
    assert jobs[told["job_id"]].resumes == killed

    one = record(database, whole["job_id"])
    two = record(database, killed, told["job_id"], last_step=3)
    assert one.steps() == two.steps() == [0, 1, 2, 3, 4, 5, 6]
    assert len(one.turns) == 6 * 16 + 4 * 4
    assert all(len(turns) == 3 for turns in one.turns.values())
    assert two.turns == one.turns
    assert two.metrics == one.metrics
    for step in (3, 6):
        places = [tmp_path / run / "checkpoints" / f"step-{step:06d}" for run in ("straight", "halves")]
        left, right = map(checkpoint_bits, places)
        assert sorted(left) == sorted(right)
        assert [name for name in left if left[name] != right[name]] == []

    again = strop("run", job, "--resume", tmp_path / "halves", "--json")
    assert again.returncode == 0, again.stderr
    assert "already finished: all 6 steps are in" in again.stderr
    assert json.loads(again.stdout)["job_id"] == told["job_id"]
