import logging
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event, text

from strop.errors import StoreError
from strop.locales import FromOldStore
from strop.schema.function import TaskStatus
from strop.schema.job import JobStatus
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import Group, Trajectory, Turn
from strop.store.checkpoints import get_checkpoint, list_checkpoints
from strop.store.database import open_database
from strop.store.events import list_events
from strop.store.jobs import get_job
from strop.store.logs import log_lines, log_tail
from strop.store.metrics import record_metrics, step_metrics
from strop.store.recorder import StoreRecorder
from strop.store.trajectories import list_trajectories
from strop.store.writer import Writer


@pytest.fixture
def recorder(database, job):
    with StoreRecorder(database, "job-1") as made:
        yield made


def step_of_groups(num_groups: int, size: int) -> tuple[Group, ...]:
    """As large as a step of the demo: two turns a rollout, hundreds of tokens, kilobytes of messages."""
    message = {"role": "user", "content": "Use the calculator: what is 12 + 30? " * 20}
    turns = tuple(
        Turn(
            index=index,
            prompt_ids=tuple(range(300)),
            completion_ids=tuple(range(64)),
            behaviour_logprobs=(-0.5,) * 64,
            policy_versions=(1,) * 64,
            temperature=1.0,
            finish_reason=FinishReason.STOP,
            messages=(message,) * (1 + 2 * index),
            response={"role": "assistant", "content": "12 + 30 = 42"},
            latency_s=0.5,
        )
        for index in range(2)
    )
    one = Trajectory(
        rollout_id="", attempt_id="a1", group_id="", sample_id="x", attempts=1, status=TaskStatus.SUCCESS,
        turns=turns, messages=(message,) * 4, reward=1.0,
    )  # fmt: skip
    return tuple(
        Group(
            group_id=f"g{group}",
            sample=Sample(sample_id="x", row=1, messages=[message]),
            trajectories=tuple(replace(one, rollout_id=f"g{group}-r{member}") for member in range(size)),
        )
        for group in range(num_groups)
    )


def test_everything_told_is_there_after_a_flush(database, recorder):
    recorder.status(JobStatus.RUNNING)
    recorder.metrics(1, {"actor/loss": 0.5})
    recorder.trajectories(1, step_of_groups(2, 2), split="train")
    failed = FromOldStore("2 of 16 rollouts failed", "16 条轨迹中 2 条失败")
    recorder.event("rollouts_failed", failed, step=1, data={"codes": {"timeout": 2}})
    recorder.checkpoint(1, Path("/c/step-1"), policy_version=4, validation=0.75, published=False, best=True)
    recorder.progress(1, "rollout", 3, 16)
    recorder.log("function:accuracy", "stderr", "first line\nsecond line\n")
    recorder.flush()
    with database.read() as session:
        assert get_job(session, "job-1").status is JobStatus.RUNNING
        assert step_metrics(session, "job-1") == {"actor/loss": [(1, 0.5)]}
        assert len(list_trajectories(session, "job-1", step=1, split="train").items) == 4
        told = list_events(session, "job-1").items[0]
        assert (told.kind, told.message, told.step) == ("rollouts_failed", "2 of 16 rollouts failed", 1)
        assert told.message_in("zh") == "16 条轨迹中 2 条失败"
        assert told.data == {"codes": {"timeout": 2}}
        checkpoint = get_checkpoint(session, "job-1-step-1")
        assert (checkpoint.folder, checkpoint.policy_version) == (Path("/c/step-1"), 4)
        assert (checkpoint.validation, checkpoint.published) == (0.75, False)
        lines = log_tail(session, "job-1").items
        assert [(line.component, line.stream, line.text) for line in lines] == [
            ("function:accuracy", "stderr", "first line"),
            ("function:accuracy", "stderr", "second line"),
        ]


def test_a_checkpoint_recorded_again_is_brought_up_to_date(database, recorder):
    recorder.checkpoint(2, Path("/c/2"), policy_version=2, validation=None, published=False, best=False)
    recorder.checkpoint(1, Path("/c/1"), policy_version=1, validation=0.5, published=False, best=True)
    recorder.checkpoint(2, Path("/c/2"), policy_version=2, validation=0.9, published=True, best=True)
    recorder.flush()
    with database.read() as session:
        found = [(one.step, one.validation, one.published) for one in list_checkpoints(session, "job-1")]
        assert found == [(1, 0.5, False), (2, 0.9, True)]
        with pytest.raises(StoreError, match="no checkpoint 'job-1-step-3'"):
            get_checkpoint(session, "job-1-step-3")


def test_log_lines_are_followed_by_component(database, recorder):
    for number in range(5):
        recorder.log("trainer", "stdout", f"step {number}")
    recorder.log("engine", "stdout", "ready")
    recorder.flush()
    with database.read() as session:
        tail = log_tail(session, "job-1", component="trainer", lines=2)
        assert [line.text for line in tail.items] == ["step 3", "step 4"]
        assert log_lines(session, "job-1", component="trainer", after=tail.next).items == ()
        first = log_lines(session, "job-1", limit=4)
        rest = log_lines(session, "job-1", after=first.next)
        assert [line.text for line in rest.items] == ["step 4", "ready"]
    recorder.log("trainer", "stdout", "step 5")
    recorder.flush()
    with database.read() as session:
        news = log_lines(session, "job-1", component="trainer", after=tail.next)
        assert [line.text for line in news.items] == ["step 5"]


def test_events_are_followed_and_filtered(database, recorder):
    for number in range(3):
        recorder.event("saved" if number else "started", f"event {number}")
    recorder.flush()
    with database.read() as session:
        first = list_events(session, "job-1", limit=1)
        rest = list_events(session, "job-1", after=first.next)
        assert [one.message for one in rest.items] == ["event 1", "event 2"]
        assert [one.message for one in list_events(session, "job-1", kind="started").items] == ["event 0"]


def test_close_loses_nothing_and_no_thread_stays(database, job):
    recorder = StoreRecorder(database, "job-1")
    for step in range(1000):
        recorder.metrics(step, {"a": float(step)})
    recorder.close()
    recorder.close()
    with database.read() as session:
        assert step_metrics(session, "job-1") == {"a": [(step, float(step)) for step in range(1000)]}
    assert not [thread for thread in threading.enumerate() if thread.name == "recorder job-1"]
    with pytest.raises(StoreError, match="closed"):
        recorder.metrics(1, {"a": 1.0})


def test_threads_record_together(database, recorder):
    def work(number: int) -> None:
        for step in range(50):
            recorder.metrics(step, {f"t{number}": float(step)})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.flush()
    with database.read() as session:
        curves = step_metrics(session, "job-1")
    assert curves == {f"t{number}": [(step, float(step)) for step in range(50)] for number in range(8)}


def test_recording_a_step_costs_the_caller_less_than_fifty_milliseconds(recorder):
    groups = step_of_groups(8, 8)
    values = {f"trace/rollout_metrics/m{number}/avg": 0.5 for number in range(120)}
    started = time.thread_time()
    recorder.metrics(1, values)
    recorder.trajectories(1, groups, split="train")
    assert time.thread_time() - started < 0.05


def test_metrics_may_be_reused_by_the_caller(database, recorder):
    values = {"a": 1.0}
    recorder.metrics(1, values)
    values["a"] = 2.0
    recorder.flush()
    with database.read() as session:
        assert step_metrics(session, "job-1") == {"a": [(1, 1.0)]}


def test_a_recorder_of_no_job_is_refused(database):
    with pytest.raises(StoreError, match="no job 'ghost'"):
        StoreRecorder(database, "ghost")


def test_a_move_that_is_not_allowed_is_raised_at_once(database, recorder):
    with pytest.raises(StoreError, match="PENDING and cannot become SUCCEEDED"):
        recorder.status(JobStatus.SUCCEEDED)


def test_a_final_status_comes_after_all_that_was_told_before(database, recorder):
    recorder.status(JobStatus.RUNNING)
    recorder.metrics(9, {"a": 1.0})
    recorder.status(JobStatus.FAILED, error="step 9: too many failures")
    with database.read() as session:
        assert step_metrics(session, "job-1") == {"a": [(9, 1.0)]}
        assert get_job(session, "job-1").error == "step 9: too many failures"


def test_what_can_never_be_written_is_reported_and_does_not_hold_up_the_rest(database, recorder, caplog):
    recorder.metrics(1, {"a": 1.0})
    recorder.metrics(2, {"a": "high"})  # pyright: ignore[reportArgumentType]
    recorder.metrics(3, {"a": 3.0})
    with pytest.raises(StoreError, match="1 records could not be written"):
        recorder.flush()
    recorder.flush()  # reported once
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1
    with database.read() as session:
        assert step_metrics(session, "job-1") == {"a": [(1, 1.0), (3, 3.0)]}


only_sqlite = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
"""Only its file can be kept from growing."""


@pytest.fixture
def full_disk(database):
    """The file may not grow, as on a full disk; calling it makes room again."""
    with database.read() as session:
        pages = session.scalar(text("PRAGMA page_count"))
    limits = []

    def limit(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute(f"PRAGMA max_page_count={limits[-1]}").close()

    event.listen(database._engine.pool, "checkout", limit)
    limits.append(pages)
    yield lambda: limits.append(10**9)
    limits.append(10**9)


@only_sqlite
def test_a_full_disk_raises_at_flush_is_logged_once_and_loses_nothing(database, recorder, full_disk, caplog):
    recorder.trajectories(1, step_of_groups(8, 8), split="train")
    for _ in range(3):
        with pytest.raises(StoreError, match=r"1 records are not written.*disk is full") as caught:
            recorder.flush()
        assert "free some disk space" in str(caught.value)
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1
    assert not recorder.taken()
    full_disk()
    assert recorder.taken()
    recorder.flush()
    with database.read() as session:
        assert len(list_trajectories(session, "job-1", limit=100).items) == 64


@only_sqlite
def test_a_disk_that_stays_full_raises_at_close(database, job, full_disk):
    recorder = StoreRecorder(database, "job-1")
    recorder.trajectories(1, step_of_groups(8, 8), split="train")
    with pytest.raises(StoreError, match="disk is full"):
        recorder.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "recorder job-1"]


@only_sqlite
def test_after_the_end_whoever_asks_hears_that_a_record_was_not_taken(database, job, full_disk):
    recorder = StoreRecorder(database, "job-1")
    recorder.trajectories(1, step_of_groups(8, 8), split="train")
    with pytest.raises(StoreError, match="disk is full"):
        recorder.close()
    assert not recorder.taken()


def test_a_full_queue_waits_for_a_slow_database_and_is_bounded(database, job):
    gate = threading.Event()
    writer = Writer(database, name="slow", queue_limit=3)
    for _ in range(3):
        writer.put(lambda session: gate.wait() and None)
    accepted = threading.Event()

    def fourth() -> None:
        writer.put(lambda session: record_metrics(session, "job-1", 1, {"a": 1.0}))
        accepted.set()

    thread = threading.Thread(target=fourth)
    thread.start()
    assert not accepted.wait(0.05)
    gate.set()
    thread.join()
    writer.close()
    with database.read() as session:
        assert step_metrics(session, "job-1") == {"a": [(1, 1.0)]}


@only_sqlite
def test_a_full_queue_before_a_full_disk_raises_instead_of_hanging(database, job, full_disk):
    writer = Writer(database, name="full", queue_limit=1)
    big = {f"name/{number}": 1.0 for number in range(5000)}
    writer.put(lambda session: record_metrics(session, "job-1", 1, big))
    with pytest.raises(StoreError, match="disk is full"):
        writer.flush()
    with pytest.raises(StoreError, match="1 records are not written"):
        writer.put(lambda session: None)
    with pytest.raises(StoreError, match="disk is full"):
        writer.close()


def test_another_process_that_holds_the_lock_is_waited_for(database, recorder):
    other = open_database()
    flushed = threading.Thread(target=recorder.flush)
    with other.write() as session:
        get_job(session, "job-1")
        recorder.metrics(1, {"a": 1.0})
        flushed.start()
        flushed.join(0.05)
        assert flushed.is_alive()
    flushed.join()
    other.close()
    with database.read() as session:
        assert step_metrics(session, "job-1") == {"a": [(1, 1.0)]}


def test_why_a_job_failed_is_kept_in_both_languages(database, recorder):
    recorder.status(JobStatus.RUNNING)
    recorder.status(
        JobStatus.FAILED, error=FromOldStore("no GPU\n  fix: buy one", "没有 GPU\n  修正：买一块")
    )
    with database.read() as session:
        job = get_job(session, "job-1")
    assert (job.error_in("en"), job.error_in("zh")) == ("no GPU\n  fix: buy one", "没有 GPU\n  修正：买一块")
