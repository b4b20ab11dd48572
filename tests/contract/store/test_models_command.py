"""`strop models`: the table as an operator edits it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from strop.cli.commands import app
from strop.errors import ConflictError, ModelError, StropError
from strop.schema.job import Checkpoint
from strop.store.checkpoints import record_checkpoint
from strop.store.home import home

RUNNER = CliRunner()


def strop_models(*words: str) -> str:
    done = RUNNER.invoke(app, ["models", *words], env={"STROP_LANG": "en"})
    if isinstance(done.exception, StropError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "Qwen3.5-9B"
    made.mkdir()
    (made / "config.json").write_text("{}")
    return made


def test_a_name_is_added_listed_and_removed(folder: Path) -> None:
    strop_models("add", "qwen3.5-9b", str(folder))
    strop_models("add", "qwen-hub", "Qwen/Qwen2.5-0.5B-Instruct")
    listed: list[dict[str, Any]] = json.loads(strop_models("list", "--json"))
    assert [(one["name"], one["source"]) for one in listed] == [
        ("smollm2-135m", "smollm2-135m"),
        ("qwen-hub", "Qwen/Qwen2.5-0.5B-Instruct"),
        ("qwen3.5-9b", str(folder)),
    ]
    with pytest.raises(ConflictError, match=r"'qwen3\.5-9b' is taken"):
        strop_models("add", "qwen3.5-9b", str(folder))
    strop_models("remove", "qwen3.5-9b")
    with pytest.raises(ModelError, match="no model"):
        strop_models("show", "qwen3.5-9b")


def test_a_source_that_is_no_model_is_refused(tmp_path: Path) -> None:
    for source in (str(tmp_path), "nothing", "/no/such/folder"):
        with pytest.raises(ModelError, match="is no model"):
            strop_models("add", "mine", source)


def test_a_jobs_best_checkpoint_is_published_shown_and_removed(database, job, folder: Path) -> None:
    for step, validation in ((3, 0.9), (4, 0.1)):
        made = Checkpoint(
            checkpoint_id=f"job-1-step-{step}",
            job_id="job-1",
            step=step,
            folder=folder,
            policy_version=step,
            validation=validation,
            created_at=job.created_at,
        )
        with database.write() as session:
            record_checkpoint(session, made)
    told = json.loads(strop_models("publish", "job-1", "calculator", "--checkpoint", "best", "--json"))
    assert (told["name"], told["lineage"]["step"]) == ("calculator", 3)
    shown = json.loads(strop_models("show", "calculator"))
    assert shown["lineage"]["config"] == job.config
    assert (home() / "models" / "calculator" / "lineage.json").is_file()
    strop_models("remove", "calculator")
    assert not (home() / "models" / "calculator").exists()
