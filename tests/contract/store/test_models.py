"""The table of names and what publishing puts into it, on a real database and a real disk."""

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.recorder import FakeRecorder
from strop.cli.training_here import publish
from strop.errors import CheckpointError, ConflictError, ModelError
from strop.learners.local.checkpoint import write_checkpoint
from strop.rl.trainer import RunResult
from strop.schema.job import Checkpoint, Event, JobStatus
from strop.schema.model import ModelKind
from strop.store.checkpoints import list_checkpoints, record_checkpoint
from strop.store.events import record_event
from strop.store.home import home
from strop.store.model_folder import check_name, models_folder, published_folder
from strop.store.models import (
    find_model,
    list_models,
    models_of_job,
    numbered_models,
    register_model,
    remove_model,
    usable_model,
)
from strop.store.published import (
    INPUTS_EVENT,
    check_free,
    choose_checkpoint,
    publish_checkpoint,
    remove_published,
)


@pytest.fixture
def checkpoint(job, tmp_path):
    return checkpoint_of(job.job_id, 3, tmp_path)


def checkpoint_of(job_id: str, step: int, root: Path, *, validation: float | None = None) -> Checkpoint:
    folder = root / f"step-{step}"
    for part in ("trainer", "adapter"):
        (folder / part).mkdir(parents=True)
    served = ("config.json", "model.safetensors", "adapter/adapter_config.json")
    for name in (*served, "manifest.json", "trainer/optimizer.safetensors"):
        (folder / name).write_text(f"{name} {step}" if name != "manifest.json" else "{}")
    return Checkpoint(
        checkpoint_id=f"{job_id}-step-{step}",
        job_id=job_id,
        step=step,
        folder=folder,
        policy_version=step,
        validation=validation,
        created_at=datetime.now(UTC),
    )


def test_a_name_stands_for_its_source_and_is_not_given_twice(database):
    with database.write() as session:
        register_model(session, "qwen3.5-9b", "/models/Qwen3.5-9B")
    with database.read() as session:
        found = find_model(session, "qwen3.5-9b")
        assert found is not None
        assert (found.kind, found.source) == (ModelKind.REGISTERED, "/models/Qwen3.5-9B")
        assert found.base_model == "qwen3.5-9b"
    for name in ("qwen3.5-9b", "SmolLM2-135M"):
        with pytest.raises(ConflictError, match="is taken"), database.write() as session:
            register_model(session, name, "/elsewhere")


def test_a_name_that_is_not_there_is_400_and_lists_what_is(database):
    with database.write() as session:
        register_model(session, "qwen3.5-9b", "/models/Qwen3.5-9B")
    with (
        pytest.raises(ModelError, match=r"there are: qwen3\.5-9b, smollm2-135m") as caught,
        database.read() as session,
    ):
        usable_model(session, "qwen3-8b", workspace_id="default")
    assert caught.value.http_status == 400
    assert "strop models add qwen3-8b" in str(caught.value)
    with database.read() as session:
        assert usable_model(session, "SmolLM2-135M", workspace_id="default").source == "smollm2-135m"


def test_publishing_keeps_the_served_files_and_the_lineage_and_leaves_the_optimizer(
    database, job, checkpoint
):
    inputs = {"data": {"train.jsonl": "a1"}, "code": {"reward": "b2"}}
    with database.write() as session:
        record_event(
            session,
            Event(
                job_id=job.job_id, kind=INPUTS_EVENT, message="", data=inputs, created_at=datetime.now(UTC)
            ),
        )
    model = publish_checkpoint(database, checkpoint, "calculator")
    folder = published_folder("calculator")
    assert folder == home() / "models" / "calculator"
    assert model.source == str(folder)
    kept = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    assert kept == {"config.json", "model.safetensors", "adapter/adapter_config.json", "lineage.json"}
    assert (folder / "model.safetensors").stat().st_ino == (
        checkpoint.folder / "model.safetensors"
    ).stat().st_ino
    lineage = model.lineage
    assert lineage is not None
    assert (lineage.job_id, lineage.step, lineage.base_model) == (job.job_id, 3, "smollm2-135m")
    assert (lineage.data, lineage.code, lineage.config) == (inputs["data"], inputs["code"], job.config)
    assert set(lineage.files) == kept - {"lineage.json"}
    assert json.loads((folder / "lineage.json").read_text()) == lineage.model_dump(mode="json")
    with database.read() as session:
        assert find_model(session, "calculator") == model
        assert model.base_model == "smollm2-135m"


def test_a_published_name_never_changes_what_it_stands_for(database, job, checkpoint, tmp_path):
    first = publish_checkpoint(database, checkpoint, "calculator")
    other = checkpoint_of(job.job_id, 4, tmp_path)
    assert publish_checkpoint(database, checkpoint, "calculator") == first
    with pytest.raises(ConflictError, match="'calculator' is taken"):
        publish_checkpoint(database, other, "calculator")
    second = publish_checkpoint(database, other, "calculator", next_free=True)
    assert second.name == "calculator-v2"
    assert publish_checkpoint(database, other, "calculator", next_free=True) == second
    assert (Path(first.source) / "config.json").read_text() == "config.json 3"
    assert (Path(second.source) / "config.json").read_text() == "config.json 4"
    left = {path.name for path in models_folder().iterdir() if not path.name.endswith(".lock")}
    assert left == {"calculator", "calculator-v2"}


def test_a_publication_cut_off_before_its_row_is_finished_by_the_next(database, job, checkpoint):
    publish_checkpoint(database, checkpoint, "calculator")
    with database.write() as session:
        remove_model(session, "calculator")
    again = publish_checkpoint(database, checkpoint, "calculator")
    with database.read() as session:
        assert find_model(session, "calculator") == again


def test_removing_takes_row_and_files_and_the_name_is_free(database, job, checkpoint, tmp_path):
    publish_checkpoint(database, checkpoint, "calculator")
    with database.write() as session:
        remove_model(session, "calculator")
        remove_published("calculator")
    assert published_folder("calculator") is None
    assert (checkpoint.folder / "config.json").is_file()
    assert (
        publish_checkpoint(database, checkpoint_of(job.job_id, 5, tmp_path), "calculator").lineage.step == 5
    )
    with pytest.raises(ModelError, match="no model 'calculator-v9'"), database.write() as session:
        remove_model(session, "calculator-v9")


def test_what_is_published_is_marked_at_its_checkpoint_and_found_by_its_job(database, job, checkpoint):
    with database.write() as session:
        record_checkpoint(session, checkpoint)
    model = publish_checkpoint(database, checkpoint, "calculator")
    with database.read() as session:
        assert [one.published for one in list_checkpoints(session, job.job_id)] == [True]
        assert models_of_job(session, job.job_id) == [model]
        assert models_of_job(session, "other") == []


def test_a_name_for_a_job_is_refused_before_work_when_it_is_taken_or_none(database):
    with database.write() as session:
        register_model(session, "calculator", "/models/calculator")
    with database.read() as session:
        check_free(session, "calculator-2")
        with pytest.raises(ConflictError, match="'calculator' is taken"):
            check_free(session, "calculator")
        with pytest.raises(ModelError, match="cannot be called"):
            check_free(session, "a/b")


def test_a_checkpoint_whose_folder_has_gone_is_told(database, job, checkpoint):
    (checkpoint.folder / "config.json").unlink()
    with pytest.raises(ModelError, match="not there or holds no model"):
        publish_checkpoint(database, checkpoint, "calculator")


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "smollm2-135m", "SmolLM2-135M", "x" * 129])
def test_a_name_that_leads_elsewhere_or_is_the_bundled_ones_is_refused(name):
    with pytest.raises(ModelError, match="cannot be called"):
        check_name(name)


def test_the_best_checkpoint_is_the_newest_of_the_highest_validation(job, tmp_path):
    scores = {1: 0.2, 2: 0.9, 3: 0.9, 4: 0.5, 5: None}
    shelf = [checkpoint_of("job-1", step, tmp_path, validation=score) for step, score in scores.items()]
    assert choose_checkpoint(job, shelf, "best").step == 3
    assert choose_checkpoint(job, shelf, "last").step == 5
    assert choose_checkpoint(job, shelf, "2").step == 2
    assert choose_checkpoint(job, shelf, "job-1-step-4").step == 4
    with pytest.raises(CheckpointError, match="steps with a checkpoint: 1, 2, 3, 4, 5"):
        choose_checkpoint(job, shelf, "6")
    with pytest.raises(CheckpointError, match="none was validated"):
        choose_checkpoint(job, shelf[-1:], "best")


@pytest.mark.parametrize(
    ("training_type", "best"), [("reinforcement", 1), ("pg_opd", 1), ("sft", 3), ("dpo", 3), ("cpt", 3)]
)
def test_the_best_checkpoint_has_the_lowest_loss_where_a_job_learns_from_rows(
    job, tmp_path, training_type, best
):
    validations = {1: 2.5, 2: 0.5, 3: 0.5, 4: 1.75}
    shelf = [checkpoint_of("job-1", step, tmp_path, validation=one) for step, one in validations.items()]
    of_type = job.model_copy(update={"config": {"training": {"type": training_type}}})
    assert choose_checkpoint(of_type, shelf, "best").step == best


def test_a_workspace_sees_its_own_models_and_the_operators(database, job, checkpoint):
    with database.write() as session:
        register_model(session, "base", "/models/base")
    publish_checkpoint(database, checkpoint, "mine")
    with database.read() as session:
        assert [one.name for one in list_models(session)] == ["base", "mine"]
        assert [one.name for one in list_models(session, workspace_id="other")] == ["base"]
        assert find_model(session, "mine", workspace_id="other") is None
        own, total = numbered_models(session, workspace_id="default", page_no=1, page_size=1)
        assert ([one.name for one in own], total) == (["mine"], 2)
        custom, _ = numbered_models(
            session, workspace_id="default", kind=ModelKind.PUBLISHED, page_no=1, page_size=9
        )
        assert [one.name for one in custom] == ["mine"]


def test_a_run_that_is_through_is_published_by_its_own_job_and_by_no_other(database, job, tmp_path):
    """Its trainer may have died between the last checkpoint and the model's name."""

    def fill(part: Path) -> None:
        (part / "config.json").write_text("{}")

    position = {"job_id": job.job_id, "published": True}
    folder = write_checkpoint(tmp_path / "step-000003", fill, step=3, policy_version=3, position=position)
    through = RunResult(
        status=JobStatus.SUCCEEDED,
        steps=3,
        checkpoint=folder,
        best=None,
        validations=(),
        sampled_tokens=0,
        trained_tokens=0,
        already_finished=True,
    )

    def published_by(job_id: str) -> str | None:
        session: Any = SimpleNamespace(
            job_id=job_id,
            config=SimpleNamespace(tuned_model_name=None),
            store=SimpleNamespace(flush=lambda: None, database=database),
            backends=SimpleNamespace(recorder=FakeRecorder()),
        )
        return publish(session, through)

    assert published_by("job-2") is None
    assert published_folder(job.job_id) is None
    assert [published_by(job.job_id) for _ in range(2)] == [job.job_id] * 2
    assert published_folder(job.job_id) is not None
