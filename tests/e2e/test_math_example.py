"""examples/math: Ark's rows, `reward_fn`, presets and no agent, on a tiny model."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

from fakes.command import Strop
from fakes.model import save_tiny_model
from strop.store.database import open_database
from strop.store.jobs import list_jobs
from strop.store.metrics import step_metrics

EXAMPLE = Path(__file__).parents[2] / "examples" / "math"


def test_every_reward_of_the_example_is_measured_as_ark_does(strop: Strop, tmp_path: Path) -> None:
    folder = tmp_path / "math"
    shutil.copytree(EXAMPLE, folder)
    save_tiny_model(folder / "model")
    small = [
        "model=model",
        "num_steps=3",
        "batch_size=4",
        "num_generations=4",
        "max_new_tokens=8",
        "test_every_n_steps=3",
    ]
    sets = [part for one in small for part in ("--set", one)]
    done = strop("run", folder / "job.yaml", "--json", *sets)
    # So small a model never answers in the form asked for, so every group gets one reward.
    assert done.returncode == 1, done.stderr
    assert "nothing was learned" in done.stderr

    names = [
        "trace/reward/right/bon",
        "trace/reward/box/won",
        "trace/reward/brief/avg",
        "trace/reward_metrics/box/cut/max",
        "trace/reward_metrics/box/cut/min",
        "function/error_rate/failed",
        "critic/score/mean",
    ]
    database = open_database(f"sqlite:///{tmp_path}/home/strop.db")
    with database.read() as session:
        (run,) = list_jobs(session).items
        found = step_metrics(session, run.job_id, names)
    database.close()
    curves = {name: [value for _, value in found[name]] for name in names}
    assert all(len(values) == 3 for values in curves.values())
    assert all(math.isfinite(value) for values in curves.values() for value in values)
    assert curves["function/error_rate/failed"] == [0.0, 0.0, 0.0]
    assert all(-1 <= value <= 0 for value in curves["trace/reward/brief/avg"])
    assert all(
        0 <= low <= high <= 1 for low, high in zip(*(curves[name] for name in names[4:2:-1]), strict=True)
    )


def test_its_test_envelope_is_answered_and_its_weights_are_shown(strop: Strop) -> None:
    asked = strop(
        "functions",
        "test",
        "reward.py:reward_fn",
        "--root",
        EXAMPLE,
        "--input",
        EXAMPLE / "request.json",
        "--json",
    )
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == {"rewards": [1.0, 0.0], "metrics": {"cut": 0.5}, "status": "success"}
    shown = strop("functions", "show", EXAMPLE / "job.yaml", "--json")
    assert shown.returncode == 0, shown.stderr
    parts = json.loads(shown.stdout)["parts"]
    assert [(one["function"], one["weight"], one["share"]) for one in parts] == [
        ("right", 1.0, 1.0),
        ("box", 0.25, 1.0),
        ("brief", 0.1, 1.0),
    ]
