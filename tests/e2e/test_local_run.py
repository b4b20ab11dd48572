"""A run in its own process, ended from another terminal and by a second Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from fakes.command import Strop
from fakes.running import Running, processes_with, trainer_of

LONG = ("--set", "n_epochs=200", "--set", "save_strategy=steps", "--set", "save_steps=1")


def test_a_run_is_canceled_from_another_terminal_and_keeps_its_steps(
    job_folder: Path, strop: Strop, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with Running("run", job_folder / "job.yaml", *LONG, home=home) as run:
        run.says("checkpoint of step 1")
        assert trainer_of(home) == run.process.pid  # there is no other process to lose
        (job,) = json.loads(strop("jobs", "list", "--json").stdout)
        assert job["status"] == "RUNNING"
        canceled = strop("jobs", "cancel", job["job_id"])
        assert canceled.returncode == 0, canceled.stderr
        assert run.end() == 130, run.text
    assert f"{job['job_id']}   CANCELED   " in run.text
    assert f"--resume {job['job_id']}" in run.text


def test_a_second_ctrl_c_ends_the_run_at_once_with_its_workers_and_says_how_to_resume(
    job_folder: Path, strop: Strop, tmp_path: Path
) -> None:
    mark = f"ENDED={tmp_path}"
    settings = (*LONG, "--set", "seed=7")
    with Running(
        "run", job_folder / "job.yaml", *settings, home=tmp_path / "home", ENDED=str(tmp_path)
    ) as run:
        run.says("checkpoint of step 1")
        os.kill(run.process.pid, signal.SIGINT)
        run.says("ending: ")
        os.kill(run.process.pid, signal.SIGINT)
        assert run.end() == 130, run.text
    (job,) = json.loads(strop("jobs", "list", "--json").stdout)
    assert job["status"] == "CANCELED"
    assert f"--set seed=7 --resume {job['job_id']}" in run.text
    assert "Traceback" not in run.text
    assert all("strop.workers" not in one for one in processes_with(mark).values())
