"""`strop demo` on the real small model, cut to one step."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_demo_trains_the_real_model_and_its_summary_tells_all_of_it(
    smollm2: Path, tmp_path: Path
) -> None:
    out = tmp_path / "demo"  # where it goes by default, as the README's command has it
    env = {**os.environ, "STROP_HOME": str(smollm2.parent.parent), "STROP_LANG": "en"}
    env |= {"STROP_DATABASE_URL": f"sqlite:///{tmp_path}/strop.db", "COLUMNS": "160"}
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
    # One step and two validations of 64 rollouts: at least one token each, at most three turns of 20.
    assert 3 * 64 <= told["tokens_sampled"] <= 3 * 64 * 60
    assert told["tokens_trained"] <= told["tokens_sampled"]
    assert [set(asked) for asked in told["questions"]] == [{"question", "answer", "right"}] * 3
    assert (Path(told["checkpoint"]) / "model.safetensors").is_file()
    assert re.fullmatch(r"calculator(-v\d+)?", told["published_as"])  # a name that is taken is kept
    for words in ("before training", "step   1/1", "reward", "validation", "What next"):
        assert words in done.stdout
