"""`strop demo` on the real small model, in a clone whose example is cut to one small step."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.calculator import WORDING

ROOT = Path(__file__).parents[2]
WORDING_REWARD = """\
  - type: reward
    name: wording
    fcmodel: {classpath: functions/reward.py:Wording}
"""
NUM_VALIDATED, NUM_TRAINED = 4, 2 * 4
"""Rollouts of each validation and of the step, after the cuts; in the example they are 64 each."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The source and the calculator example as a clone has them, but for the number of rows and rollouts."""
    folder = tmp_path / "clone"
    shutil.copytree(ROOT / "src" / "strop", folder / "src" / "strop")
    example = folder / "examples" / "calculator"
    shutil.copytree(ROOT / "examples" / "calculator", example)
    rows = (example / "data" / "validation.jsonl").read_text().splitlines(keepends=True)
    assert len(rows) == 64
    (example / "data" / "validation.jsonl").write_text("".join(rows[:NUM_VALIDATED]))
    job = (example / "job.yaml").read_text()
    for old, new in (
        ("batch_size: 8", "batch_size: 2"),
        ("n_rollouts: 8", "n_rollouts: 4"),
        ("functions:\n", f"functions:\n{WORDING_REWARD}"),
    ):
        assert job.count(old) == 1
        job = job.replace(old, new)
    (example / "job.yaml").write_text(job)
    with (example / "functions" / "reward.py").open("a") as file:
        file.write(WORDING)
    return folder


@pytest.mark.slow
def test_the_demo_trains_the_real_model_and_its_summary_tells_all_of_it(
    own_home: Path, clone: Path, tmp_path: Path
) -> None:
    out = tmp_path / "demo"  # where it goes by default, as the README's command has it
    env = {**os.environ, "STROP_LANG": "en", "COLUMNS": "160", "PYTHONPATH": str(clone / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "strop.cli", "demo", "--steps", "1", "--seed", "3"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((out / "summary.json").read_text())
    assert (told["model"], told["algorithm"], told["seed"], told["steps"]) == ("smollm2-135m", "gspo", 3, 1)
    assert [point["step"] for point in told["validation"]] == [0, 1]
    assert told["validation"][0]["mean_at_1"] < 0.2
    assert told["wall_s"] > 0
    # One step and two validations: at least one token a rollout, at most three turns of 20.
    num_rollouts = 2 * NUM_VALIDATED + NUM_TRAINED
    assert num_rollouts <= told["tokens_sampled"] <= num_rollouts * 60
    assert told["tokens_trained"] <= told["tokens_sampled"]
    assert [set(asked) for asked in told["questions"]] == [{"question", "answer", "right"}] * 3
    assert (Path(told["checkpoint"]) / "model.safetensors").is_file()
    assert told["published_as"] == "calculator"
    assert (own_home / "models" / "calculator" / "model.safetensors").is_file()
    for words in ("before training", "step   1/1", "reward", "validation", "What next"):
        assert words in done.stdout
