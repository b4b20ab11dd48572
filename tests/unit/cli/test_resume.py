"""What a user may give to --resume, and what it then means."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from strop.cli.run_folder import find_resumed
from strop.errors import CheckpointError, ConfigError
from strop.learners.local.checkpoint import write_checkpoint
from strop.schema.job import Job, JobStatus
from strop.schema.submission import LocalRun, Submission
from strop.store.database import open_database
from strop.store.jobs import create_job
from strop.store.submissions import create_submission


def checkpoint(shelf: Path, step: int) -> Path:
    def fill(part: Path) -> None:
        (part / "weights").write_bytes(b"w")

    position = {"job_id": f"ft-{step}", "published": False}
    place = shelf / f"step-{step:06d}"
    return write_checkpoint(place, fill, step=step, policy_version=step, position=position)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two checkpoints."""
    for step in (9, 10):
        checkpoint(tmp_path / "run" / "checkpoints", step)
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("given", "step"), [("run", 10), ("run/checkpoints", 10), ("run/checkpoints/step-000009", 9)]
)
def test_a_run_its_shelf_and_a_checkpoint_are_understood(
    given: str, step: int, run: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(run.parent)
    found = find_resumed(given, None)
    assert found is not None
    assert found.checkpoint == run / "checkpoints" / f"step-{step:06d}"
    assert (found.folder, found.job_id) == (run, f"ft-{step}")
    assert found.lies_in(run)


def test_a_job_s_id_is_found_in_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STROP_HOME", str(tmp_path))
    newest = checkpoint(tmp_path / "jobs" / "ft-7" / "checkpoints", 2)
    found = find_resumed("ft-7", None)
    assert found is not None
    assert found.checkpoint == newest


def test_a_job_that_was_given_a_folder_is_found_by_its_id(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("STROP_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("STROP_DATABASE_URL", raising=False)
    with pytest.raises(ConfigError, match="no folder or job 'ft-1'"):
        find_resumed("ft-1", None)
    assert not (tmp_path / "home").exists()
    job = Job(job_id="ft-1", name="j", status=JobStatus.FAILED, model="m", created_at=datetime.now(UTC))
    asked = LocalRun(job_file=tmp_path / "job.yaml", out=run).model_dump(mode="json")
    database = open_database()
    with database.write() as session:
        create_job(session, job)
        create_submission(session, Submission(job_id="ft-1", creator="me", request=asked, owner="a/1/b"))
    database.close()
    (tmp_path / "home" / "jobs" / "ft-1").mkdir(parents=True)  # where its log is
    found = find_resumed("ft-1", None)
    assert found is not None
    assert found.checkpoint == run / "checkpoints" / "step-000010"
    assert found.folder == run


def test_a_newest_checkpoint_that_is_damaged_is_passed_over_but_refused_when_named(run: Path):
    newest = run / "checkpoints" / "step-000010"
    (newest / "weights").write_bytes(b"x")
    found = find_resumed(str(run), None)
    assert found is not None
    assert found.checkpoint.name == "step-000009"
    with pytest.raises(CheckpointError, match="content of 'weights'"):
        find_resumed(str(newest), None)


def test_a_checkpoint_alone_leaves_the_folder_to_the_new_run(tmp_path: Path):
    found = find_resumed(str(checkpoint(tmp_path, 3)), None)
    assert found is not None
    assert found.folder is None
    elsewhere = find_resumed(str(tmp_path / "step-000003"), tmp_path / "out")
    assert elsewhere is not None
    assert elsewhere.folder == tmp_path / "out"
    assert not elsewhere.lies_in(tmp_path / "out")


def test_a_run_whose_checkpoints_are_all_damaged_is_refused_and_left_as_it_is(run: Path):
    for place in (run / "checkpoints").iterdir():
        (place / "weights").write_bytes(b"x")
    for given, out in (("auto", run), (str(run), None), (str(run / "checkpoints"), None)):
        with pytest.raises(ConfigError) as caught:
            find_resumed(given, out)
        told = str(caught.value)
        assert "none of which can be used; step-000010: checkpoint" in told
        assert "the content of 'weights' is not what was written" in told
        assert "to start over, choose another folder with --out" in told


def test_auto_goes_on_where_there_is_something_and_else_begins(run: Path, tmp_path: Path):
    found = find_resumed("auto", run)
    assert found is not None
    assert found.checkpoint.name == "step-000010"
    assert find_resumed("auto", tmp_path / "nothing") is None
    with pytest.raises(ConfigError, match="add --out FOLDER"):
        find_resumed("auto", None)


@pytest.mark.parametrize("given", ["/nope", "/", "nope/step-1", ""])
def test_what_is_no_run_is_refused_with_what_to_give(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="--resume: ") as caught:
        find_resumed(given, None)
    assert "give the folder of a run" in str(caught.value)


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path):
    write_checkpoint(tmp_path / "step-1", lambda part: None, step=1, policy_version=1, position={"row": 3})
    with pytest.raises(CheckpointError, match="not written by a training run"):
        find_resumed(str(tmp_path / "step-1"), None)
