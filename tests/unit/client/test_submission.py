"""A tuning is checked by the flow's own rules before anything is sent."""

import json
from pathlib import Path

import pytest

from strop.client.submission import check
from strop.client.tuning import Tuning, checked
from strop.errors import ConfigError


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "f.py").write_text("class F: pass\n")
    rows = [{"messages": [{"role": "user", "content": str(n)}]} for n in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def tuning(**hyper: object) -> Tuning:
    data = {
        "model": {"name": "smollm2-135m"},
        "datasets": [{"file_name": "rows.jsonl"}],
        "functions": [{"type": "reward", "fcmodel": {"classpath": "f.F"}}],
        "training": {"hyper_parameters": hyper},
    }
    return checked(Tuning, data, subject="job")


def test_numbers_as_text_names_of_ark_and_a_cloud_s_own_keys_are_taken(workspace: Path) -> None:
    check(tuning(batch_size="4", lr="1e-6", n_gpus_rollout=8), workspace)


def test_a_value_out_of_range_and_more_rows_than_there_are_are_told(workspace: Path) -> None:
    with pytest.raises(ConfigError, match="learning_rate"):
        check(tuning(lr=7), workspace)
    with pytest.raises(ConfigError, match="8 rows"):
        check(tuning(batch_size=9), workspace)
