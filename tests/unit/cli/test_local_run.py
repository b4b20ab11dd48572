"""What a run in the command's own process leaves in the store and tells its terminal."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from fakes.jobs import write_job
from strop.cli import local_run
from strop.cli.job_record import HeardRecorder
from strop.cli.next_steps import RunCommand
from strop.cli.progress import LiveProgress
from strop.config.job import JobConfig
from strop.config.loading import load_job
from strop.errors import ConfigError, DataError, Problem, RequestError, StropError
from strop.locales import FromOldStore
from strop.processes.mark import this_process
from strop.schema.job import PLANNED_EVENT, JobStatus
from strop.schema.submission import LocalRun, Wanted
from strop.store.checkpoints import list_checkpoints
from strop.store.database import Database, open_database
from strop.store.events import list_events
from strop.store.jobs import get_job, process_of
from strop.store.recorder import StoreRecorder
from strop.store.submissions import get_submission, unfinished, wanted_of


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    return load_job(write_job(tmp_path / "job", rows=4, save_steps=1), {})


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path}/strop.db")
    yield opened
    opened.close()


def asked(config: JobConfig, **more: Path) -> LocalRun:
    return LocalRun(job_file=Path(config.workspace_dir) / "job.yaml", **more)


@pytest.fixture
def job_id(database: Database, config: JobConfig) -> str:
    return local_run._create_job(database, config, asked(config))


def test_the_job_is_running_as_this_process_and_no_server_looks_after_it(
    database: Database, config: JobConfig, job_id: str
) -> None:
    with database.read() as session:
        job = get_job(session, job_id)
        submission = get_submission(session, job_id)
        assert (job.status, process_of(job)) == (JobStatus.RUNNING, this_process())
        assert submission.local == asked(config)
        assert unfinished(session) == []
        assert [one.job_id for one, _ in unfinished(session, owner=str(this_process()))] == [job_id]


def test_ctrl_c_is_noted_as_a_cancel_and_one_of_a_job_that_has_just_ended_is_not(
    database: Database, job_id: str
) -> None:
    local_run._cancel(database, job_id)
    with database.read() as session:
        assert get_job(session, job_id).status is JobStatus.CANCELING
        assert wanted_of(session, job_id) is Wanted.CANCEL
    local_run._cancel(database, job_id)
    with database.read() as session:
        assert [one.kind for one in list_events(session, job_id).items] == ["cancel_asked"]


def test_an_event_is_shown_at_once_while_the_database_refuses_it_and_is_recorded_later(
    database: Database, job_id: str, tmp_path: Path
) -> None:
    out = io.StringIO()
    show = local_run._shown_by(LiveProgress(Console(file=out, width=80)))
    with HeardRecorder(database, job_id, show) as recorder:
        locked = sqlite3.connect(tmp_path / "strop.db", isolation_level=None)
        locked.execute("BEGIN IMMEDIATE")
        recorder.event("checkpoint_failed", FromOldStore("the disk is full", "磁盘已满"), step=3)
        assert out.getvalue() == "note  the disk is full\n"
        locked.rollback()
        locked.close()
        recorder.flush()
    assert out.getvalue() == "note  the disk is full\n"
    with database.read() as session:
        (event,) = list_events(session, job_id).items
    assert (event.kind, event.message, event.message_in("zh")) == (
        "checkpoint_failed",
        "the disk is full",
        "磁盘已满",
    )


def test_a_note_is_shown_in_the_language_of_the_terminal_and_what_programs_read_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STROP_LANG", "zh")
    out = io.StringIO()
    show = local_run._shown_by(LiveProgress(Console(file=out, width=80)))
    show(PLANNED_EVENT, FromOldStore("4 steps", "共 4 步"))
    show("note", FromOldStore("slow", "较慢"))
    assert out.getvalue() == "提示  较慢\n"


def test_a_resumed_run_that_saved_nothing_is_resumed_from_where_it_started(
    database: Database, config: JobConfig, job_id: str, tmp_path: Path
) -> None:
    earlier = asked(config, resume=tmp_path / "step-000003")
    assert local_run._kept(database, job_id, asked(config)) is None
    assert local_run._kept(database, job_id, earlier) == str(tmp_path / "step-000003")
    with StoreRecorder(database, job_id) as recorder:
        recorder.checkpoint(
            4, tmp_path / "step-000004", policy_version=4, validation=None, published=False, best=False
        )
    with database.read() as session:
        assert [one.step for one in list_checkpoints(session, job_id)] == [4]
    assert local_run._kept(database, job_id, earlier) == job_id


@pytest.mark.parametrize("error", [ConfigError, DataError])
def test_wrong_input_is_told_as_such_and_anything_else_with_what_to_type_next(
    database: Database, config: JobConfig, job_id: str, error: type[ConfigError] | type[DataError]
) -> None:
    def failure(reason: Exception) -> StropError:
        return local_run._failure(database, job_id, reason, asked(config), RunCommand(job=Path("job.yaml")))

    refused = failure(error("rows", [Problem(place="train.jsonl:2", message="is empty")]))
    assert isinstance(refused, RequestError)
    assert str(refused) == f"{job_id}: rows: 1 problem\n  train.jsonl:2: is empty"
    failed = failure(ValueError("odd"))
    assert not isinstance(failed, RequestError)
    first, *rest = str(failed).splitlines()
    assert first == f"{job_id}: ValueError: odd"
    assert any(f"jobs logs {job_id}" in line for line in rest)
