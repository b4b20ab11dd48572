"""`examples/code`: its tests tell right from wrong programs, and a job trains through them."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from fakes.model import save_tiny_model
from strop.functions.loading import load_processor
from strop.schema.function import GroupRewardInput

EXAMPLE = Path(__file__).parents[3] / "examples" / "code"
MADE = runpy.run_path(str(EXAMPLE / "make_data.py"))


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EXAMPLE / "data" / f"{name}.jsonl").read_text().splitlines()]


def test_the_rows_are_those_that_their_program_makes(tmp_path: Path) -> None:
    MADE["main"](tmp_path)
    for name in ("train", "validation"):
        made = (tmp_path / "data" / f"{name}.jsonl").read_text()
        assert made == (EXAMPLE / "data" / f"{name}.jsonl").read_text(), name


def test_validation_asks_what_training_never_does_and_never_twice() -> None:
    asked = [row["messages"][-1]["content"] for row in rows("validation")]
    assert len(set(asked)) == len(asked)
    assert not set(asked) & {row["messages"][-1]["content"] for row in rows("train")}


def test_every_task_has_a_program_that_passes_and_none_that_always_prints_the_same(sandbox) -> None:
    rng = Random(1)
    with score(sandbox.url, whole=True) as scored:
        for number, task in enumerate(MADE["TASKS"]):
            constant = rng.choice(task.constants)
            row = MADE["row"](rng, number, task, task.wordings[0], constant)
            last = row["extra"]["tests"][0]["output"]["stdout"].strip()
            programs = [task.program(constant), f"print({last!r})"]
            told = scored(row, *[f"```python\n{code}\n```" for code in programs])
            assert scores(told) == [1.0, 0.0], task.expression
            assert metrics(told)["tests_passed"] == (1.0 + 0.25) / 2, task.expression


def test_the_solved_examples_do_what_they_are_asked(sandbox) -> None:
    """Each with an input and what a person expects of it."""
    inputs = [
        ("6\n", "7"),
        ("13\n", "3"),
        ("6\n-2\n", "4"),
        ("13\n5\n", "3"),
        ("lemon\n", "lemon!"),
        ("lemon\n", "m"),
    ]
    shown = [
        (message["content"], expected)
        for kind in ("INTEGER", "PAIR", "LINE")
        for message in first_of(kind)["messages"]
        if message["role"] == "assistant"
        for expected in [inputs.pop(0)]
    ]
    assert len(shown) == 6
    with score(sandbox.url) as scored:
        for answer, (stdin, stdout) in shown:
            tests = [{"input": {"stdin": stdin}, "output": {"stdout": f"{stdout}\n"}}]
            extra = {"contest_id": 1, "language": "python", "time_limit": "10", "tests": tests}
            assert scored({"messages": [], "extra": extra}, answer) == [1.0], answer


def test_an_answer_earns_by_all_its_tests_or_nothing_with_a_block_or_without(sandbox) -> None:
    row = next(
        row for row in rows("train") if row["messages"][-1]["content"].endswith("Print the larger one.")
    )
    read = "a = int(input())\nb = int(input())\n"
    answers = [
        f"```python\n{read}print(max(a, b))\n```",
        f"{read}print(max(a, b))",
        f"```python\n{read}print(a)\n```",
        f"So:\n```python\n{read}print(a)\n```",
        "raise SystemExit(1)",
        "I cannot.",
        "",
    ]
    before = submissions(sandbox)
    with score(sandbox.url, whole=True) as scored:
        told = scored(row, *answers, answers[0])
    # Printing the first number is right in two of four tests, and earns nothing.
    assert scores(told) == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    assert metrics(told)["tests_passed"] == (3 * 1.0 + 2 * 0.5) / 8
    assert metrics(told)["partly"] == 2 / 8
    assert submissions(sandbox) - before == len(answers)  # the same answer twice is run once


def test_without_a_sandbox_no_program_is_wrong() -> None:
    with score("http://127.0.0.1:9", whole=True) as scored:
        told = scored(rows("train")[0], "print(1)")
    assert told.error_code == "retry"
    assert "sandbox: ConnectError" in told.error


def test_a_job_is_scored_by_the_sandbox_step_after_step(sandbox, tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "model")
    before = submissions(sandbox)
    room = {"max_prompt_length": 400, "max_length": 512}  # its tokens are little more than letters
    small = {"max_steps": 2, "n_rollouts": 2, "batch_size": 2, "max_tokens": 8}
    done = run_job(sandbox, tmp_path, model=tmp_path / "model", **room, **small)
    # Nothing that so small a model says is a program, so every group gets one reward.
    assert done.returncode == 1, done.stderr[-3000:]
    assert "nothing was learned" in done.stderr
    assert "Of 2 steps, 2 had nothing to learn from" in done.stderr
    assert submissions(sandbox) - before == 2 * 2 * 2


def first_of(kind: str) -> dict[str, Any]:
    task = next(task for task in MADE["TASKS"] if task.input is MADE[kind])
    return MADE["row"](Random(1), 1, task, task.wordings[0], task.constants[0])


@contextmanager
def score(url: str, *, whole: bool = False) -> Iterator[Any]:
    """The example's reward as a job's worker loads it, asking the sandbox at `url`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDBOX_URL", url)
        patch.setattr(sys, "meta_path", list(sys.meta_path))
        patch.setattr(sys, "path", list(sys.path))
        loaded = set(sys.modules)
        processor = load_processor("functions/reward.py:reward_fn", EXAMPLE)()

        def scored(row: dict[str, Any], *answers: str) -> Any:
            asked = {
                "agent_outputs": [
                    {"messages": [*row["messages"], {"role": "assistant", "content": text}]}
                    for text in answers
                ],
                "request_metadata": {"job_id": "j", "sample_id": "s", "rollout_id": "g", "attempt_id": "a1"},
                "sample": {**row, "tools": []},
                "completions": [{"finish_reason": "stop", "usage": {}} for _ in answers],
                "context": {"phase": "train"},
            }
            output = processor.process(GroupRewardInput.model_validate(asked))
            return output if whole else scores(output)

        try:
            yield scored
        finally:
            for name in sys.modules.keys() - loaded:
                if name == "rl_types" or name.startswith("functions"):
                    del sys.modules[name]


def scores(output: Any) -> list[float]:
    return [one.reward_score for one in output.reward.rewards]


def metrics(output: Any) -> dict[str, float]:
    return output.reward.rewards[0].reward_metrics


def run_job(sandbox, folder: Path, **changes: object) -> subprocess.CompletedProcess[str]:
    """The example's job, changed, without its validation."""
    shutil.copytree(EXAMPLE, folder / "code")
    job = folder / "code" / "job.yaml"
    told = yaml.safe_load(job.read_text())
    told["datasets"] = told["datasets"][:1]
    del told["training"]["hyper_parameters"]["eval_steps"]
    job.write_text(yaml.safe_dump(told))
    settings = [part for name, value in changes.items() for part in ("--set", f"{name}={value}")]
    env = {**os.environ, "STROP_HOME": str(folder / "home"), "SANDBOX_URL": sandbox.url, "STROP_LANG": "en"}
    return subprocess.run(
        [sys.executable, "-m", "strop.cli", "run", job, "--out", folder / "run", *settings],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )


def submissions(sandbox) -> float:
    lines = sandbox.client.get("/metrics").text.splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("strop_sandbox_submissions_total")
    )
