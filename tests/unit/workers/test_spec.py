"""What a worker is told, and the environment it gets."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from strop.config.job import FunctionConfig
from strop.schema.function import FunctionType
from strop.workers.functions import worker_spec
from strop.workers.spec import WorkerSpec, worker_environment


def config(**runtime: object) -> FunctionConfig:
    return FunctionConfig.model_validate(
        {
            "type": "reward",
            "timeout": 7,
            "fcmodel": {"classpath": "functions/exact.py:Exact", "zipdir": "code"},
            "runtime": runtime,
        }
    )


def test_a_spec_takes_label_folder_and_limits_from_the_configuration(tmp_path: Path) -> None:
    spec = worker_spec(config(concurrency=3), tmp_path)
    assert spec.name == "Exact"
    assert spec.root == tmp_path.resolve() / "code"
    assert spec.func_type is FunctionType.REWARD
    assert (spec.timeout_s, spec.concurrency) == (7.0, 3)


def test_a_spec_survives_the_way_to_the_worker_without_its_environment(tmp_path: Path) -> None:
    spec = worker_spec(config(env={"KEY": "secret-value"}), tmp_path)
    text = spec.to_json("the-token")
    assert "secret-value" not in text
    assert WorkerSpec.from_json(text) == (
        WorkerSpec(
            name="Exact",
            classpath="functions/exact.py:Exact",
            root=spec.root,
            func_type=FunctionType.REWARD,
            timeout_s=7.0,
        ),
        "the-token",
    )
    assert "secret-value" not in repr(spec)


def test_environment_values_become_text_and_structures_are_refused_without_their_value(
    tmp_path: Path,
) -> None:
    env = worker_spec(config(env={"A": 1, "B": True, "C": "x", "D": 0.5}), tmp_path).env
    assert env == {"A": "1", "B": "true", "C": "x", "D": "0.5"}
    with pytest.raises(ValidationError) as caught:
        config(env={"KEYS": ["secret-value"]})
    assert "KEYS is a list; an environment variable is text" in str(caught.value)
    assert "secret-value" not in str(caught.value)


def test_the_environment_is_the_parents_without_our_settings_and_with_the_functions_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STROP_DATABASE_URL", "postgresql://user:password@host/db")
    monkeypatch.setenv("STROP_HOME", "/home/strop")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("SOME_TOOL", "here")
    env = worker_environment(worker_spec(config(env={"KEY": "v"}), tmp_path), "job-1")
    assert "STROP_DATABASE_URL" not in env
    assert env["STROP_HOME"] == "/home/strop"
    assert env["STROP_JOB_ID"] == "job-1"
    assert env["SOME_TOOL"] == "here"
    assert env["KEY"] == "v"
    assert env["OMP_NUM_THREADS"] == "1"
    assert env["PYTHONUNBUFFERED"] == "1"
    chosen = worker_spec(config(env={"OMP_NUM_THREADS": 4}), tmp_path)
    assert worker_environment(chosen, "job-1")["OMP_NUM_THREADS"] == "4"
