"""Killed workers, killed reapers, a full disk, a second run: what a run meets from outside."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections import Counter
from pathlib import Path

import pytest

from fakes.command import Strop
from fakes.running import Running, processes_with, trainer_of, workers_of
from strop.schema.job import JobStatus
from strop.store.database import open_database
from strop.store.events import list_events
from strop.store.jobs import get_job, list_jobs
from strop.store.trajectories import list_trajectories

QUICK = [
    word
    for setting in ("max_steps=4", "eval_steps=99", "n_rollouts=4", "max_tokens=6")
    for word in ("--set", setting)
]


def test_killed_workers_and_reapers_cost_attempts_and_nothing_else(job_folder: Path, tmp_path: Path) -> None:
    mark = f"SURVIVAL={tmp_path}"
    home = tmp_path / "home"
    with Running("run", job_folder / "job.yaml", *QUICK, "--json", home=home, SURVIVAL=str(tmp_path)) as run:
        run.says("step   1/4")
        reaper = min(workers_of(mark))
        os.kill(workers_of(mark)[reaper], signal.SIGKILL)
        run.says("step   2/4")
        os.kill(max(workers_of(mark)), signal.SIGKILL)
        assert run.end() == 0, run.text
        told, _ = json.JSONDecoder().raw_decode(run.text, run.text.index("{\n"))  # what to type next follows
    assert processes_with(mark) == {}
    assert (told["status"], told["steps"]) == ("SUCCEEDED", 4)

    database = open_database(f"sqlite:///{home}/strop.db")
    with database.read() as session:
        page = list_trajectories(session, told["job_id"], limit=1000)
    database.close()
    counted = Counter((one.split, one.step) for one in page.items)
    assert counted == {("validation", 0): 8, ("validation", 4): 8} | {
        ("train", step): 16 for step in range(1, 5)
    }
    assert len({one.trajectory.rollout_id for one in page.items}) == len(page.items)
    assert [one.trajectory.error for one in page.items if one.trajectory.error] == []
    assert told["tokens_sampled"] == sum(one.num_sampled_tokens for one in page.items)


def test_a_full_disk_is_told_and_outlived_between_and_at_the_end(job_folder: Path, tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    saving = ("--set", "save_strategy=steps", "--set", "save_steps=1", "--out", out)
    with Running("run", job_folder / "job.yaml", *QUICK, *saving, home=home) as run:
        run.says("checkpoint of step 1")
        trainer = trainer_of(home)
        unlimited = resource.prlimit(trainer, resource.RLIMIT_FSIZE)
        # No file may grow beyond 64 kB from now on: as on a full disk, for checkpoints and database alike.
        resource.prlimit(trainer, resource.RLIMIT_FSIZE, (65_536, unlimited[1]))
        run.says("note  the checkpoint of step 4 could not be written")
        assert "held in memory" in run.text
        resource.prlimit(trainer, resource.RLIMIT_FSIZE, unlimited)
        assert run.end() == 0, run.text
    assert "checkpoint of step 4" in run.text
    assert "step-000004" in {one.name for one in (out / "checkpoints").iterdir()}
    database = open_database(f"sqlite:///{home}/strop.db")
    with database.read() as session:
        (job,) = list_jobs(session).items
        failed = list_events(session, job.job_id, kind="checkpoint_failed").items
    database.close()
    assert job.status is JobStatus.SUCCEEDED
    steps = [one.step for one in failed]
    assert steps == list(range(steps[0], 5))  # whichever was due when the disk was full, and all after it


def test_a_second_run_with_the_same_folder_is_refused_and_one_beside_it_is_told(
    job_folder: Path, strop: Strop, tmp_path: Path
) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    long = (*QUICK[2:], "--set", "n_epochs=200", "--out", out)
    with Running("run", job_folder / "job.yaml", *long, home=home) as first:
        first.says("before training")
        trainer = trainer_of(home)
        same = strop("run", job_folder / "job.yaml", "--out", out)
        assert same.returncode == 2
        assert f"--out: '{out}' is in use by ft-" in same.stderr
        assert f"(process {trainer} on " in same.stderr
        beside = strop("run", job_folder / "job.yaml", "--steps", 1, "--json")
        assert beside.returncode == 0, beside.stderr
        assert f"trains here too (process {trainer})" in beside.stderr
        first.process.send_signal(signal.SIGINT)
        assert first.end() == 130, first.text
    database = open_database(f"sqlite:///{home}/strop.db")
    with database.read() as session:
        statuses = [one.status for one in list_jobs(session).items]
        assert sorted(statuses) == [JobStatus.CANCELED, JobStatus.SUCCEEDED]
        assert get_job(session, json.loads(beside.stdout)["job_id"]).resumes is None
    database.close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--resume", "/nope"), "--resume: there is no folder or job '/nope'"),
        (("--resume", "auto"), "--resume: auto looks in the folder of --out"),
        (("--out", "/proc/nope"), "--out: checkpoints cannot be written to '/proc/nope'"),
    ],
)
def test_a_folder_that_will_not_do_is_refused_before_the_model_is_looked_at(
    arguments: tuple[str, str], told: str, job_folder: Path, strop: Strop
) -> None:
    (job_folder / "model" / "model.safetensors").write_bytes(b"no weights")
    done = strop("run", job_folder / "job.yaml", *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert "cannot be loaded" not in done.stderr
