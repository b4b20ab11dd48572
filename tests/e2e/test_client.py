"""A job file, submitted from the command line to a server with a real trainer, and shown while it trains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fakes.command import Strop
from fakes.server import serving
from strop import Client
from strop.service.supervisor.trainers import TRAINER_COMMAND
from strop.store.home import home
from strop.store.models import register_model


def test_a_run_on_a_server_shows_steps_validation_and_time_left_and_publishes(
    job_folder: Path, strop: Strop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(home(), trainer=tuple(TRAINER_COMMAND)) as server:
        with server.database.write() as session:
            register_model(session, "tiny", str(job_folder / "model"))
        monkeypatch.setenv("STROP_API_KEY", server.key)
        monkeypatch.setenv("COLUMNS", "200")
        changes = [word for name in ("model=tiny", "n_epochs=1", "eval_steps=2") for word in ("--set", name)]
        done = strop("run", job_folder / "job.yaml", "--server", server.url, *changes)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        steps = [line for line in lines if line.startswith("step ")]
        assert [line[:10] for line in steps] == [f"step   {step}/4" for step in (1, 2, 3, 4)]
        assert re.search(r"reward \d\.\d\d   sampled [\d,]+ tok at [\d,]+/s .* left", steps[-1])
        validations = [line for line in lines if re.search(r"validation \d\.\d\d$", line)]
        assert [line.partition(" validation")[0].rstrip() for line in validations] == [
            "before training", "after step   2/4", "after step   4/4",
        ]  # fmt: skip
        job_id = re.search(r"ft-\d{14}-[0-9a-f]{16}", done.stdout)
        assert job_id is not None
        with Client(server.url, server.key) as client:
            job = client.jobs.get(job_id[0])
            assert client.models.get(job.finetuned_output).lineage["job_id"] == job.job_id
            first, *_ = client.jobs.trajectories(job.job_id, step=1, split="train", limit=500)
            one = client.jobs.trajectory(job.job_id, first.rollout_id)
            assert [turn.num_completion_tokens > 0 for turn in one.turns] == [True, True]
            assert any("rollout done" in line for line in client.jobs.logs(job.job_id))
