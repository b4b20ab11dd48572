import sqlite3
import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from strop.errors import StoreError
from strop.store import (  # noqa: F401  their tables
    checkpoints,
    deployments,
    entities,
    events,
    files,
    findings,
    instance_logs,
    job_moves,
    jobs,
    keys,
    logs,
    metrics,
    models,
    sessions,
    spans,
    submissions,
    trajectories,
)
from strop.store.database import database_url, open_database
from strop.store.home import home
from strop.store.tables import Base


def test_a_new_database_stands_in_home_and_has_every_table(database):
    assert (home() / "strop.db").is_file()
    with database.read() as session:
        names = set(session.scalars(text("SELECT name FROM sqlite_master WHERE type = 'table'")))
    assert names == {
        "jobs", "metrics", "trajectories", "turns", "checkpoints", "logs", "events", "alembic_version",
        "workspaces", "api_keys", "files", "uploads", "entities", "layers", "instances", "instance_logs",
        "submissions", "models", "deployments", "job_moves", "sessions", "spans", "findings",
    }  # fmt: skip


def test_the_migrations_make_exactly_the_tables_of_the_code(database):
    with database.read() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


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


def test_a_database_of_a_newer_strop_is_refused_and_says_what_to_do(database):
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match=r"'9999'.*newer") as caught:
        open_database()
    assert "upgrade strop" in str(caught.value)


def test_a_new_database_may_be_opened_by_many_at_once():
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
    with sqlite3.connect(home() / "strop.db") as connection:
        assert connection.execute("SELECT count(*) FROM alembic_version").fetchone() == (1,)
    connection.close()


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
    with pytest.raises(StoreError, match="FOREIGN KEY"), database.write() as session:
        metrics.record_metrics(session, "nobody", 1, {"actor/loss": 1.0})
