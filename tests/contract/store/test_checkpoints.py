"""Which checkpoint is the best, and which are gone."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from strop.errors import StoreError
from strop.schema.job import Checkpoint, Job, JobStatus
from strop.store.checkpoints import get_checkpoint, list_checkpoints
from strop.store.jobs import create_job
from strop.store.recorder import StoreRecorder


@pytest.fixture
def recorder(database, job):
    with StoreRecorder(database, "job-1") as made:
        yield made


def save(recorder: StoreRecorder, step: int, *, best: bool = False) -> Path:
    folder = Path(f"/runs/a/step-{step}")
    recorder.checkpoint(step, folder, policy_version=step, validation=None, published=False, best=best)
    return folder


def steps(database, job_id: str = "job-1", **options) -> list[int]:
    with database.read() as session:
        return [one.step for one in list_checkpoints(session, job_id, **options)]


def test_a_removed_checkpoint_is_in_no_list_and_says_when_it_went(database, recorder):
    for step in (1, 2, 3):
        save(recorder, step)
    recorder.checkpoint_removed(Path("/runs/a/step-2"))
    recorder.flush()
    assert steps(database) == [1, 3]
    assert steps(database, with_removed=True) == [1, 2, 3]
    with database.read() as session:
        gone = list_checkpoints(session, "job-1", with_removed=True)[1]
        assert gone.removed_at is not None
        assert abs((datetime.now(UTC) - gone.removed_at).total_seconds()) < 60
        with pytest.raises(StoreError, match="'job-1-step-2' was removed at 20") as caught:
            get_checkpoint(session, "job-1-step-2")
    assert caught.value.fix == "take one that is left: job-1-step-1, job-1-step-3"


def test_the_mark_of_the_best_moves_and_there_is_one(database, recorder):
    for step, best in ((1, True), (2, False), (3, True)):
        save(recorder, step, best=best)
    recorder.flush()
    with database.read() as session:
        assert [one.best for one in list_checkpoints(session, "job-1")] == [False, False, True]


def test_a_checkpoint_saved_again_is_back(database, recorder):
    folder = save(recorder, 1)
    recorder.checkpoint_removed(folder)
    save(recorder, 1)
    recorder.flush()
    assert steps(database) == [1]


def test_a_resumed_run_marks_what_it_removed_of_the_run_before(database, recorder):
    folder = save(recorder, 1)
    with database.write() as session:
        created = datetime.now(UTC)
        create_job(
            session,
            Job(job_id="job-2", name="n", status=JobStatus.PENDING, model="m", created_at=created),
        )
    recorder.flush()
    with StoreRecorder(database, "job-2") as second:
        second.checkpoint_removed(folder)
    assert steps(database) == []


def test_a_record_as_it_was_before_the_marks_reads_as_neither_best_nor_removed():
    plain = Checkpoint(
        checkpoint_id="c",
        job_id="j",
        step=1,
        folder=Path("/c"),
        policy_version=1,
        created_at=datetime.now(UTC),
    )
    assert (plain.best, plain.removed_at) == (False, None)
