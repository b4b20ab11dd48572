import gzip
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from strop.errors import StoreError
from strop.schema.job import JobStatus
from strop.store import (  # noqa: F401  their tables
    checkpoints,
    deployments,
    entities,
    events,
    files,
    findings,
    jobs,
    keys,
    logs,
    metrics,
    models,
    spans,
    submissions,
    trajectories,
)
from strop.store.database import database_url, open_database
from strop.store.home import home
from strop.store.jobs import create_job
from strop.store.schema_version import MIGRATIONS, newest_revision
from strop.store.tables import Base

only_sqlite = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
only_postgresql = pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)


@only_sqlite
def test_a_new_database_stands_in_home(database):
    assert (home() / "strop.db").is_file()


def test_a_new_database_has_every_table(new_database):
    database = open_database()
    with database.read() as session:
        names = set(inspect(session.connection()).get_table_names())
    database.close()
    assert names == {
        "jobs", "metrics", "trajectories", "turns", "checkpoints", "logs", "events", "alembic_version",
        "workspaces", "api_keys", "files", "uploads", "entities", "layers", "instances", "instance_logs",
        "submissions", "models", "deployments", "job_moves", "sessions", "spans", "findings", "progress",
    }  # fmt: skip


def test_the_migrations_make_exactly_the_tables_of_the_code(database):
    with database.read() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_the_newest_revision_is_told_by_the_names_of_the_files_alone():
    assert newest_revision() == ScriptDirectory(str(MIGRATIONS)).get_current_head()


def test_a_database_that_is_up_to_date_is_opened_without_alembic(database):
    code = "import sys; from strop.store.database import open_database; open_database().close()"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('alembic' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"


@only_sqlite
def test_sqlite_is_set_up_for_one_writer_among_readers(database):
    with database.read() as session:
        found = {
            name: session.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        }
    assert found == {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 1, "busy_timeout": 10_000}


def test_opening_again_keeps_what_is_there(database, job):
    again = open_database()
    with again.read() as session:
        assert jobs.get_job(session, job.job_id) == job
    again.close()


def test_a_database_of_a_newer_strop_is_refused_and_says_what_to_do(new_database):
    database = open_database()
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(StoreError, match=r"'9999'.*newer") as caught:
        open_database()
    assert "upgrade strop" in str(caught.value)


def test_a_new_database_may_be_opened_by_many_at_once(new_database):
    failures = []

    def opens():
        try:
            open_database().close()
        except StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=opens) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    database = open_database()
    with database.read() as session:
        assert session.scalar(text("SELECT count(*) FROM alembic_version")) == 1
    database.close()


def test_the_url_comes_from_the_environment(monkeypatch, tmp_path):
    file = tmp_path / "deep" / "other.db"
    monkeypatch.setenv("STROP_DATABASE_URL", f"sqlite:///{file}")
    assert database_url().database == str(file)
    open_database().close()
    assert file.is_file()
    assert not home().exists()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(url):
    with pytest.raises(StoreError, match="in memory") as caught:
        open_database(url)
    assert "sqlite:////" in str(caught.value)


def test_an_unreadable_url_is_refused_without_repeating_its_password():
    with pytest.raises(StoreError) as caught:
        open_database("postgresql//ada:secret@host/strop")
    assert "secret" not in str(caught.value)
    assert "postgresql+psycopg://" in str(caught.value)


def test_a_file_that_is_no_database_is_refused_with_its_name(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("these are notes, " * 100)
    with pytest.raises(StoreError, match=r"notes\.txt.*not a database") as caught:
        open_database(f"sqlite:///{file}")
    assert "move it away" in str(caught.value)


def test_a_file_that_a_link_points_to_is_made_for_its_owner_alone(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    before = os.umask(0o022)
    try:
        open_database(f"sqlite:///{tmp_path}/link.db").close()
    finally:
        os.umask(before)
    assert (tmp_path / "link.db").is_symlink()
    assert stat.S_IMODE((tmp_path / "elsewhere.db").stat().st_mode) == 0o600


def test_a_home_that_cannot_be_made_is_refused_with_the_fix(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STROP_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(StoreError, match="cannot make the folder") as caught:
        open_database()
    assert "STROP_HOME" in str(caught.value)


def test_a_failed_write_keeps_nothing(database, job):
    def write_and_fail() -> None:
        with database.write() as session:
            metrics.record_metrics(session, job.job_id, 1, {"actor/loss": 1.0})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    with database.read() as session:
        assert metrics.step_metrics(session, job.job_id) == {}


def test_a_reader_sees_one_state_while_another_writes(database, job):
    with database.read() as reading:
        assert metrics.step_metrics(reading, job.job_id) == {}
        with database.write() as writing:
            metrics.record_metrics(writing, job.job_id, 1, {"actor/loss": 1.0})
        assert metrics.step_metrics(reading, job.job_id) == {}
    with database.read() as reading:
        assert metrics.step_metrics(reading, job.job_id) == {"actor/loss": [(1, 1.0)]}


def test_what_belongs_to_no_job_is_refused(database):
    with pytest.raises(StoreError, match=r"(?i)foreign key"), database.write() as session:
        metrics.record_metrics(session, "nobody", 1, {"actor/loss": 1.0})


@only_postgresql
def test_a_writer_has_its_turn_to_itself_from_its_first_look(database, job):
    looked = threading.Event()

    def second() -> None:
        looked.set()
        with database.write() as session:
            jobs.move_job(session, job.job_id, JobStatus.CANCELED)

    thread = threading.Thread(target=second)
    with database.write() as session:
        seen = jobs.get_job(session, job.job_id)
        thread.start()
        looked.wait()
        thread.join(0.05)
        assert thread.is_alive()
        assert jobs.get_job(session, job.job_id) == seen
        jobs.move_job(session, job.job_id, JobStatus.RUNNING)
    thread.join()
    with database.read() as session:
        assert jobs.get_job(session, job.job_id).status is JobStatus.CANCELED


@only_postgresql
def test_lost_connections_are_made_anew(database, job):
    with database.write() as session:
        session.execute(text("SELECT pg_backend_pid()"))
    killing = open_database()
    with killing.write() as session:
        session.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        )
    killing.close()
    with database.write() as session:
        metrics.record_metrics(session, job.job_id, 1, {"actor/loss": 1.0})
    with database.read() as session:
        assert metrics.step_metrics(session, job.job_id) == {"actor/loss": [(1, 1.0)]}


@only_postgresql
def test_the_url_may_have_the_form_that_most_tools_write(database, job, monkeypatch):
    monkeypatch.setenv("STROP_DATABASE_URL", database.url.replace("postgresql+psycopg://", "postgres://"))
    again = open_database()
    with again.read() as session:
        assert jobs.get_job(session, job.job_id) == job
    again.close()


def test_a_server_that_is_not_there_is_told_with_what_to_do():
    with pytest.raises(StoreError, match="connection failed") as caught:
        open_database("postgresql://ada:secret@127.0.0.1:1/strop")
    assert "start PostgreSQL" in str(caught.value)
    assert "secret" not in str(caught.value)


OLD_HOME = Path(__file__).parents[2] / "fixtures" / "home-0009.db.gz"
"""A home's database that the last development version wrote, whose nine migrations this schema replaced."""

WHEN = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def old_home():
    home().mkdir()
    (home() / "strop.db").write_bytes(gzip.decompress(OLD_HOME.read_bytes()))


def shape(connection):
    """Everything that a database says about its tables, whatever the order of their columns."""
    found = inspect(connection)

    def columns(table):
        return {
            one["name"]: (str(one["type"]), one["nullable"], one["default"])
            for one in found.get_columns(table)
        }

    return {
        table: (
            columns(table),
            found.get_pk_constraint(table),
            sorted(found.get_foreign_keys(table), key=str),
            sorted(found.get_indexes(table), key=str),
            sorted(found.get_unique_constraints(table), key=str),
            found.get_table_options(table),
        )
        for table in found.get_table_names()
    }


@only_sqlite
def test_a_home_made_before_the_first_release_has_exactly_the_tables_of_a_new_one(
    new_database, old_home, tmp_path
):
    with sqlite3.connect(home() / "strop.db") as raw:
        assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [("0009",)]
    raw.close()
    old, new = open_database(), open_database(f"sqlite:///{tmp_path}/new.db")
    with old.read() as of_old, new.read() as of_new:
        assert shape(of_old.connection()) == shape(of_new.connection())
    old.close()
    new.close()


@only_sqlite
def test_what_a_home_made_before_the_first_release_holds_is_there(new_database, old_home):
    database = open_database()
    with database.read() as session:
        job = jobs.get_job(session, "job-1")
        assert (job.name, job.status, job.config) == ("calculator", JobStatus.FAILED, {"seed": 3})
        assert (job.created_at, job.workspace_id, job.error, job.error_said) == (
            WHEN, "default", "out of memory", "内存不足",
        )  # fmt: skip
        assert metrics.step_metrics(session, "job-1") == {
            "actor/loss": [(1, 0.25)],
            "reward/mean": [(1, 0.5)],
        }
        (listed,) = trajectories.list_trajectories(session, "job-1").items
        one = trajectories.get_trajectory(session, "job-1", "r1").trajectory
        assert (listed.num_turns, listed.ground_truth, one.reward) == (1, "42", 0.5)
        assert (one.turns[0].completion_ids, one.turns[0].behaviour_logprobs) == ((7, 70_000), (-0.5, -1.25))
        (checkpoint,) = checkpoints.list_checkpoints(session, "job-1")
        assert (checkpoint.step, checkpoint.validation, checkpoint.best) == (4, 0.75, True)
        assert [line.text for line in logs.log_tail(session, "job-1").items] == ["a line"]
        (note,) = events.list_events(session, "job-1").items
        assert (note.message_in("en"), note.message_in("zh")) == ("P1 Not converging", "P1 不收敛")
        assert [one.name for one in keys.list_workspaces(session)] == ["default"]
    with database.write() as session:
        metrics.record_metrics(session, "job-1", 2, {"actor/loss": 0.5})
        jobs.delete_job(session, "job-1")
    with database.read() as session:
        assert metrics.step_metrics(session, "job-1") == {}
    database.close()


def test_a_database_from_before_the_first_schema_is_refused_and_says_what_upgrades_it(new_database):
    database = open_database()
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0006'"))
    database.close()
    with pytest.raises(StoreError, match=r"'0006'.*before Strop's first release.*'0009'") as caught:
        open_database()
    assert "git checkout d010c66" in str(caught.value)


@only_sqlite
def test_a_database_that_a_process_opens_again_keeps_what_its_first_connection_writes(database, job):
    """Else another process that closes takes itself for the last one, and the log away."""
    place = database_url().database

    def seen_elsewhere() -> list[str]:
        code = f"import sqlite3; c = sqlite3.connect({place!r}); "
        code += "print(*(row[0] for row in c.execute('SELECT job_id FROM jobs'))); c.close()"
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()

    open_database().close()
    assert seen_elsewhere() == ["job-1"]
    with database.write() as session:
        create_job(session, job.model_copy(update={"job_id": "job-2"}))
    assert seen_elsewhere() == ["job-1", "job-2"]
