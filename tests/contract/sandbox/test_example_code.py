"""`examples/code`: its reward tells right from wrong programs, and a job trains through it."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.model import save_tiny_model
from strop.functions.loading import load_processor
from strop.schema.function import GroupRewardInput

EXAMPLE = Path(__file__).parents[3] / "examples" / "code"
ROWS = [json.loads(line) for line in (EXAMPLE / "data" / "train.jsonl").read_text().splitlines()]


def test_the_rows_are_those_that_their_program_makes() -> None:
    made = runpy.run_path(str(EXAMPLE / "make_data.py"))
    assert [made["row"](n, *task) for n, task in enumerate(made["TASKS"], 1)] == ROWS


def test_right_programs_are_rewarded_and_others_not(house, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_URL", house.url)
    programs = ["print(int(input()) + 1)", "print(int(input()))", "raise SystemExit(1)"]
    answers = [f"```python\n{code}\n```" for code in programs] + ["I cannot."]
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    outputs = [
        {"messages": [*ROWS[0]["messages"], {"role": "assistant", "content": text}]} for text in answers
    ]
    asked = {
        "agent_outputs": outputs,
        "request_metadata": {"job_id": "j", "sample_id": "s", "rollout_id": "g", "attempt_id": "a1"},
        "sample": {**ROWS[0], "tools": []},
        "completions": [{"finish_reason": "stop", "usage": {}} for _ in answers],
        "context": {"phase": "train"},
    }
    try:
        processor = load_processor("functions/reward.py:reward_fn", EXAMPLE)()
        output = processor.process(GroupRewardInput.model_validate(asked))
    finally:
        sys.modules.pop("rl_types", None)
    assert [one.reward_score for one in output.reward.rewards] == [1.0, 0.0, 0.0, 0.0]
    assert output.reward.rewards[0].reward_metrics["cases_passed"] == 0.25


def test_a_job_is_scored_by_the_sandbox_step_after_step(house, tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "model")
    changes = {"model": tmp_path / "model", "max_steps": 2, "n_rollouts": 2, "batch_size": 2, "max_tokens": 8}
    settings = [part for name, value in changes.items() for part in ("--set", f"{name}={value}")]
    env = {
        **os.environ,
        "STROP_HOME": str(tmp_path / "home"),
        "SANDBOX_URL": house.url,
        "STROP_LANG": "en",
    }
    before = submissions(house)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "strop.cli",
            "run",
            EXAMPLE / "job.yaml",
            "--out",
            tmp_path / "run",
            *settings,
        ],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    # Nothing that so small a model says is a program, so every group gets one reward.
    assert done.returncode == 1, done.stderr[-3000:]
    assert "nothing was learned" in done.stderr
    assert "Of 2 steps, 2 had nothing to learn from" in done.stderr
    assert submissions(house) - before == 2 * 2 * 2


def submissions(house) -> float:
    lines = house.client.get("/metrics").text.splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("strop_sandbox_submissions_total")
    )
