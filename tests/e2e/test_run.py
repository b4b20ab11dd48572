"""`strop run` on a tiny model: everything real but the model's size."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from fakes.command import Strop
from fakes.rounding import bfloat16_gap, spread_of
from strop.cli.commands import app
from strop.schema.job import JobStatus
from strop.store.checkpoints import list_checkpoints
from strop.store.database import open_database
from strop.store.jobs import get_job
from strop.store.logs import log_tail
from strop.store.metrics import step_metrics
from strop.store.trajectories import get_trajectory, list_trajectories


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_job_trains_until_the_reward_has_risen_and_leaves_a_checkpoint_and_a_record(
    dtype: str, job_folder: Path, strop: Strop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtypes = ("--set", f"train_dtype={dtype}", "--set", f"sampling_dtype={dtype}")
    # Where bfloat16 is emulated its run takes minutes.
    done = strop("run", job_folder / "job.yaml", *dtypes, "--json", timeout=540)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    before, *_, after = [point["mean_at_1"] for point in told["validation"]]
    assert [point["step"] for point in told["validation"]] == [0, 6, 12]
    assert before < 0.2
    assert after - before > 0.25
    assert told["status"] == "SUCCEEDED"
    assert told["tokens_sampled"] > told["tokens_trained"] > 0

    model = AutoModelForCausalLM.from_pretrained(told["checkpoint"])
    tokenizer = AutoTokenizer.from_pretrained(told["checkpoint"])
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "agents 3"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=False,
    )
    with torch.inference_mode():
        sampled = model.generate(
            ids, max_new_tokens=12, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
    logits_TV = torch.cat(sampled.logits)
    spread = spread_of(logits_TV)
    new = sampled.sequences[0, ids.shape[1] :]
    if dtype == "bfloat16":  # as far as roundings of two logits cannot change which is the largest
        first, second = logits_TV.topk(2).values.T
        bound = bfloat16_gap(num_layers=2, spread=spread, count=2 * len(new), to_float32=True, of_logits=True)
        certain = int((first - second > 2 * bound).long().cumprod(0).sum())
        assert certain >= 1
        new = new[:certain]
    plain = tokenizer.decode(new, skip_special_tokens=True).rstrip("\n")
    # The command asks the processor alone.
    monkeypatch.setattr("strop.inference.local.config.has_fast_bfloat16", lambda: dtype == "bfloat16")
    words = ["chat", told["checkpoint"], "-m", "agents 3", "--max-tokens", "12", "--max-length", "128"]
    chatted = CliRunner().invoke(app, words)
    assert chatted.exit_code == 0, chatted.output
    answer = chatted.stdout.rstrip("\n")
    assert answer == plain if dtype == "float32" else answer.startswith(plain)

    database = open_database(f"sqlite:///{tmp_path}/home/strop.db")
    with database.read() as session:
        job_id = told["job_id"]
        job = get_job(session, job_id)
        assert job.status is JobStatus.SUCCEEDED
        origins = job.config["origins"]
        assert origins["training.hyper_parameters.learning_rate"] == "job.yaml:13"
        assert origins["training.hyper_parameters.train_dtype"] == "--set"
        hits = step_metrics(session, job_id, ["perf/prefix_hit_rate"])["perf/prefix_hit_rate"]
        assert all(0 < value < 1 for _, value in hits)
        rerendered = step_metrics(session, job_id, ["trace/rerendered_prompts"])["trace/rerendered_prompts"]
        assert [step for step, _ in rerendered] == list(range(1, 13))
        rewards = step_metrics(session, job_id, ["critic/rewards/mean"])["critic/rewards/mean"]
        assert [step for step, _ in rewards] == list(range(1, 13))
        assert all(math.isfinite(value) for _, value in rewards)
        ratio = step_metrics(session, job_id, ["actor/ppo_kl"])["actor/ppo_kl"]
        assert {value for _, value in ratio} == {0.0}
        gap = step_metrics(session, job_id, ["mismatch/logprob_diff_max"])["mismatch/logprob_diff_max"]
        allowed = {
            "float32": 1e-3,
            "bfloat16": bfloat16_gap(num_layers=2, spread=spread, count=told["tokens_sampled"]),
        }
        assert max(value for _, value in gap if not math.isnan(value)) < allowed[dtype]
        assert [checkpoint.step for checkpoint in list_checkpoints(session, job_id)] == [12]
        stored = list_trajectories(session, job_id, step=1, split="train").items
        assert len(stored) == 32
        turns = get_trajectory(session, job_id, stored[0].trajectory.rollout_id).trajectory.turns
        assert len(turns) == 2
        first, second = turns
        grown = first.prompt_ids + first.completion_ids
        assert second.prompt_ids[: len(grown)] == grown
        assert any("rollout done" in line.text for line in log_tail(session, job_id).items)
    database.close()


def test_a_reward_that_fails_for_every_rollout_stops_the_job_and_names_the_function(
    job_folder: Path, strop: Strop
) -> None:
    text = (job_folder / "job.yaml").read_text().replace("functions.py:ManyA", "functions.py:FailsOnOdd")
    (job_folder / "job.yaml").write_text(text)
    rows = (job_folder / "train.jsonl").read_text().replace('"even"', '"odd"')
    (job_folder / "train.jsonl").write_text(rows)
    done = strop("run", job_folder / "job.yaml", "--set", "max_failure_rate=0.6")
    assert done.returncode == 1
    (job,) = json.loads(strop("jobs", "list", "--json").stdout)
    assert job["status"] == "FAILED"
    assert f"error: {job['job_id']}: " in done.stderr
    logs = strop("jobs", "logs", job["job_id"])
    assert "no score for odd rows" in logs.stdout
    rollouts = json.loads(
        strop("jobs", "trajectories", job["job_id"], "--json", "--limit", 3, "--status", "failed").stdout
    )
    assert [one["status"] for one in rollouts] == ["failed"] * 3
    assert "many_a" in done.stderr
    assert "no score for odd rows" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_problem_of_a_job_file_is_told_before_anything_starts(job_folder: Path, strop: Strop) -> None:
    text = (job_folder / "job.yaml").read_text()
    text = text.replace("learning_rate: 0.02", "learning_rat: 0.02").replace("batch_size: 4", "batch_size: 0")
    (job_folder / "job.yaml").write_text(text)
    done = strop("run", job_folder / "job.yaml")
    assert done.returncode == 2
    assert "learning_rat" in done.stderr
    assert "learning_rate" in done.stderr
    assert "batch_size" in done.stderr
    assert f"job.yaml:{text[: text.index('learning_rat')].count(chr(10)) + 1}" in done.stderr


def test_a_dry_run_prints_the_resolved_job_with_its_origins_and_starts_nothing(
    job_folder: Path, strop: Strop, tmp_path: Path
) -> None:
    done = strop(
        "run", job_folder / "job.yaml", "--dry-run", "--json", "--steps", 3, "--set", "learning_rate=1e-4"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    hyper = told["training"]["hyper_parameters"]
    assert (hyper["max_steps"], hyper["learning_rate"], hyper["clip_ratio_high"]) == (3, 1e-4, 4e-4)
    some = ("max_steps", "learning_rate", "batch_size", "clip_ratio_high", "temperature")
    assert [told["origins"][f"training.hyper_parameters.{name}"] for name in some] == [
        "--steps",
        "--set",
        "job.yaml:16",
        "default of gspo",
        "default",
    ]
    assert not (tmp_path / "home").exists()


def test_ctrl_c_ends_a_run_with_a_checkpoint_and_the_run_goes_on_from_it(
    job_folder: Path, strop: Strop, tmp_path: Path
) -> None:
    env = {**os.environ, "STROP_HOME": str(tmp_path / "home"), "STROP_LANG": "en"}
    command = [
        sys.executable,
        "-m",
        "strop.cli",
        "run",
        str(job_folder / "job.yaml"),
        "--steps",
        "5",
        "--out",
        str(tmp_path / "out"),
    ]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("step   2"):
                running.send_signal(signal.SIGINT)
                break
        rest = running.stdout.read()
    assert running.returncode == 130, rest
    (checkpoint,) = (tmp_path / "out" / "checkpoints").glob("step-*")
    resumed = strop("run", job_folder / "job.yaml", "--steps", 5, "--resume", checkpoint, "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["steps"] == 5
