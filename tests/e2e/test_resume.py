"""Six steps straight are three, SIGKILL, three: bit for bit, through the command with real workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.command import Strop
from fakes.jobs import write_job
from fakes.run_record import Record, checkpoint_bits, record
from fakes.running import Running
from strop.schema.job import Job, JobStatus
from strop.store.database import open_database
from strop.store.jobs import list_jobs


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Three steps an epoch: the kill comes at an epoch's edge."""
    return write_job(tmp_path / "job", rows=12, save_steps=3)


class Halves:
    """Below `folder`: a run straight through, and one that is killed after its third step and goes on."""

    def __init__(self, folder: Path, whole: dict[str, Any], told: dict[str, Any]) -> None:
        self.folder, self.database = folder, folder / "home" / "strop.db"
        self.whole, self.told = whole, told
        opened = open_database(f"sqlite:///{self.database}")
        with opened.read() as session:
            self.jobs: dict[str, Job] = {one.job_id: one for one in list_jobs(session).items}
        opened.close()
        (self.killed,) = set(self.jobs) - {whole["job_id"], told["job_id"]}

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


def killed_after_three(job: Path, folder: Path, *settings: str) -> None:
    """A run in a process of its own, with its checkpoints in `folder/halves`."""
    given = ["run", job, *(word for one in settings for word in ("--set", one))]
    with Running(*given, "--out", folder / "halves", home=folder / "home") as half:
        half.says("checkpoint of step 3")
        half.kill()


def test_six_steps_are_three_a_kill_and_three_bit_for_bit(job: Path, strop: Strop, tmp_path: Path) -> None:
    whole = strop("run", job, "--out", tmp_path / "straight", "--json")
    assert whole.returncode == 0, whole.stderr
    killed_after_three(job, tmp_path)
    rest = strop("run", job, "--resume", tmp_path / "halves", "--json")
    assert rest.returncode == 0, rest.stderr
    runs = Halves(tmp_path, json.loads(whole.stdout), json.loads(rest.stdout))
    assert "is now FAILED" in rest.stderr
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

    told = goes_on_past_damage(job, strop, tmp_path / "halves")
    only_as_what_it_was(job, strop, tmp_path / "halves", told)
    leaves_what_it_cannot_use(job, strop, tmp_path / "halves")


def goes_on_past_damage(job: Path, strop: Strop, run: Path) -> dict[str, Any]:
    """From the checkpoint before, where the newest is damaged. Returns what is told of the run."""
    shelf = run / "checkpoints"
    (shelf / "step-000006" / "model.safetensors").write_bytes(b"not what was written")
    done = strop("run", job, "--resume", run, "--json")
    assert done.returncode == 0, done.stderr
    assert f"{shelf}/step-000006 is passed over: checkpoint" in done.stderr
    assert "left-1-step-000006" in done.stderr
    kept = ["left-1-step-000006", "step-000003", "step-000006"]
    assert sorted(one.name for one in shelf.iterdir()) == kept
    told = json.loads(done.stdout)
    assert told["published_as"] is not None
    return told


def only_as_what_it_was(job: Path, strop: Strop, run: Path, told: dict[str, Any]) -> None:
    """Other settings and other functions are refused by name."""
    other = strop("run", job, "--resume", told["checkpoint"], "--set", "learning_rate=0.02")
    assert other.returncode == 1
    assert "training.hyper_parameters.learning_rate was 0.01, is 0.02" in other.stderr

    functions = job.parent / "functions.py"
    functions.write_text(functions.read_text() + "\n# scored otherwise from now on\n")
    changed = strop("run", job, "--resume", run)
    assert changed.returncode == 1
    assert "functions.many_a.code was " in changed.stderr
    assert "--accept-changes goes on as it is now" in changed.stderr
    accepted = strop("run", job, "--resume", run, "--accept-changes", "--json")
    assert accepted.returncode == 0, accepted.stderr
    assert "already finished: all 6 steps are in" in accepted.stderr
    assert json.loads(accepted.stdout)["checkpoint"] == told["checkpoint"]
    alone = strop("run", job, "--accept-changes")
    assert (alone.returncode, "has no effect without --resume" in alone.stderr) == (2, True)


def leaves_what_it_cannot_use(job: Path, strop: Strop, run: Path) -> None:
    """Where no checkpoint is whole, nothing is begun and nothing removed."""
    shelf = run / "checkpoints"
    for one in shelf.iterdir():
        (one / "manifest.json").write_text("{}")
    before = sorted(shelf.rglob("*"))
    for more in (["--out", run, "--resume", "auto"], ["--out", run]):
        refused = strop("run", job, *more)
        assert refused.returncode == 2, refused.stderr
        assert "none of which can be used; step-000006: " in refused.stderr
    assert sorted(shelf.rglob("*")) == before


def test_adapters_and_the_critic_of_ppo_go_on_as_exactly(job: Path, strop: Strop, tmp_path: Path) -> None:
    settings = ["algorithm=ppo", "lora_rank=4", "critic_learning_rate=0.01", "lam=0.9", "critic_warmup=1"]
    given = ["run", job, *(word for one in settings for word in ("--set", one)), "--json"]
    whole = strop(*given, "--out", tmp_path / "straight")
    assert whole.returncode == 0, whole.stderr
    killed_after_three(job, tmp_path, *settings)
    rest = strop(*given, "--resume", tmp_path / "halves")
    assert rest.returncode == 0, rest.stderr
    one, held = Halves(tmp_path, json.loads(whole.stdout), json.loads(rest.stdout)).same()
    for name in ("actor/grad_norm", "critic/vf_loss", "critic/values/mean"):
        bits = {one.metrics[step, name] for step in (2, 3, 4, 5, 6)}
        assert len(bits) == 5, name  # it learned in every step, before the kill and after it
    files = {name.partition(":")[0] for name in held}
    assert {f"trainer/{name}.safetensors" for name in ("critic", "critic_optimizer", "optimizer")} <= files
    assert "adapter/adapter_model.safetensors" in files
