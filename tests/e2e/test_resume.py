"""Six steps straight are three, SIGKILL, three: bit for bit, through the command with real workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes.command import Strop
from fakes.jobs import write_job
from fakes.run_record import Record, checkpoint_bits, record
from fakes.running import Running
from strop.schema.job import JobStatus
from strop.store.database import open_database
from strop.store.jobs import list_jobs


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Three steps an epoch: the kill comes at an epoch's edge."""
    return write_job(tmp_path / "job", rows=12, save_steps=3)


class Halves:
    """One run straight through, and one that is killed after its third step and resumed; both from `job`."""

    def __init__(self, job: Path, strop: Strop, folder: Path, *settings: str) -> None:
        self.folder, self.database = folder, folder / "home" / "strop.db"
        self.given = ["run", job, *(word for one in settings for word in ("--set", one))]
        straight = strop(*self.given, "--out", folder / "straight", "--json")
        assert straight.returncode == 0, straight.stderr
        self.whole = json.loads(straight.stdout)
        with Running(*self.given, "--out", folder / "halves", home=folder / "home") as half:
            half.says("checkpoint of step 3")
            half.kill()
        self.rest = strop(*self.given, "--resume", folder / "halves", "--json")
        assert self.rest.returncode == 0, self.rest.stderr
        self.told = json.loads(self.rest.stdout)
        opened = open_database(f"sqlite:///{self.database}")
        with opened.read() as session:
            self.jobs = {one.job_id: one for one in list_jobs(session).items}
        opened.close()
        (self.killed,) = set(self.jobs) - {self.whole["job_id"], self.told["job_id"]}

    def same(self) -> tuple[Record, list[str]]:
        """Compare all that both left behind. Returns the record, and the names of what checkpoints hold."""
        for key in ("steps", "validation", "tokens_sampled", "tokens_trained"):
            assert self.told[key] == self.whole[key]
        one = record(self.database, self.whole["job_id"])
        two = record(self.database, self.killed, self.told["job_id"], last_step=3)
        assert one.steps() == two.steps() == [0, 1, 2, 3, 4, 5, 6]
        assert two.turns == one.turns
        assert two.metrics == one.metrics
        held: list[str] = []
        for step in (3, 6):
            runs = [self.folder / run / "checkpoints" / f"step-{step:06d}" for run in ("straight", "halves")]
            left, right = map(checkpoint_bits, runs)
            held = sorted(left)
            assert held == sorted(right)
            assert [name for name in left if left[name] != right[name]] == []
        return one, held


def test_six_steps_are_three_a_kill_and_three_bit_for_bit(job: Path, strop: Strop, tmp_path: Path) -> None:
    runs = Halves(job, strop, tmp_path)
    assert "is now FAILED" in runs.rest.stderr
    assert runs.jobs[runs.killed].status is JobStatus.FAILED
    assert "ended without a word" in (runs.jobs[runs.killed].error or "")
    assert runs.jobs[runs.told["job_id"]].resumes == runs.killed
    one, _ = runs.same()
    assert len(one.turns) == 6 * 16 + 4 * 4
    assert all(len(turns) == 3 for turns in one.turns.values())

    again = strop("run", job, "--resume", tmp_path / "halves", "--json")
    assert again.returncode == 0, again.stderr
    assert "already finished: all 6 steps are in" in again.stderr
    assert json.loads(again.stdout)["job_id"] == runs.told["job_id"]


def test_adapters_and_the_critic_of_ppo_go_on_as_exactly(job: Path, strop: Strop, tmp_path: Path) -> None:
    settings = ["algorithm=ppo", "lora_rank=4", "critic_learning_rate=0.01", "lam=0.9", "critic_warmup=1"]
    one, held = Halves(job, strop, tmp_path, *settings).same()
    for name in ("actor/grad_norm", "critic/vf_loss", "critic/values/mean"):
        bits = {one.metrics[step, name] for step in (2, 3, 4, 5, 6)}
        assert len(bits) == 5, name  # it learned in every step, before the kill and after it
    files = {name.partition(":")[0] for name in held}
    assert {f"trainer/{name}.safetensors" for name in ("critic", "critic_optimizer", "optimizer")} <= files
    assert "adapter/adapter_model.safetensors" in files


def test_a_run_goes_on_past_damage_and_only_as_what_it_was(strop: Strop, tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", rows=8, save_steps=1)
    given = ["run", job, "--steps", 2, "--set", "eval_steps=9"]
    first = strop(*given, "--out", tmp_path / "run")
    assert first.returncode == 0, first.stderr
    shelf = tmp_path / "run" / "checkpoints"

    (shelf / "step-000002" / "model.safetensors").write_bytes(b"not what was written")
    second = strop(*given, "--resume", tmp_path / "run", "--json")
    assert second.returncode == 0, second.stderr
    assert f"{shelf}/step-000002 is passed over: checkpoint" in second.stderr
    assert "left-1-step-000002" in second.stderr
    assert sorted(one.name for one in shelf.iterdir()) == [
        "left-1-step-000002",
        "step-000001",
        "step-000002",
    ]
    told = json.loads(second.stdout)
    assert told["published_as"] is not None

    other = strop(*given, "--resume", told["checkpoint"], "--set", "learning_rate=0.02")
    assert other.returncode == 1
    assert "training.hyper_parameters.learning_rate was 0.01, is 0.02" in other.stderr

    functions = job.parent / "functions.py"
    functions.write_text(functions.read_text() + "\n# scored otherwise from now on\n")
    third = strop(*given, "--resume", tmp_path / "run")
    assert third.returncode == 1
    assert "functions.many_a.code was " in third.stderr
    assert "--accept-changes goes on as it is now" in third.stderr
    accepted = strop(*given, "--resume", tmp_path / "run", "--accept-changes", "--json")
    assert accepted.returncode == 0, accepted.stderr
    assert "already finished: all 2 steps are in" in accepted.stderr
    assert json.loads(accepted.stdout)["checkpoint"] == told["checkpoint"]
    alone = strop(*given, "--accept-changes")
    assert (alone.returncode, "has no effect without --resume" in alone.stderr) == (2, True)

    for one in shelf.iterdir():
        (one / "manifest.json").write_text("{}")
    before = sorted(shelf.rglob("*"))
    for more in (["--out", tmp_path / "run", "--resume", "auto"], ["--out", tmp_path / "run"]):
        refused = strop(*given, *more)
        assert refused.returncode == 2, refused.stderr
        assert "none of which can be used; step-000002: " in refused.stderr
    assert sorted(shelf.rglob("*")) == before
