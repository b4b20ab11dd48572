"""What a killed server left half-written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from strop.schema.job import Job, JobStatus
from strop.service.leftovers import OLD_S, clear_leftovers
from strop.store.blobs import Blobs
from strop.store.database import Database, open_database
from strop.store.jobs import create_job


@pytest.fixture
def database() -> Iterator[Database]:
    opened = open_database()
    yield opened
    opened.close()


def aged(path: Path, seconds: float) -> Path:
    when = path.stat().st_mtime - seconds
    os.utime(path, (when, when))
    return path


def test_what_is_old_and_half_written_goes_and_all_else_stays(tmp_path: Path, database: Database) -> None:
    blobs = Blobs(str(tmp_path / "blobs"))
    for name in (
        "arriving",
        "bundles/.new",
        "bundles/whole",
        "layers/.x",
        "jobs/checked/data",
        "blobs/.parts",
    ):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "jobs" / "trained" / "checkpoints").mkdir(parents=True)
    (tmp_path / "arriving" / "old").write_bytes(b"x")
    (tmp_path / "arriving" / "new").write_bytes(b"x")
    (tmp_path / "blobs" / ".parts" / "old").write_bytes(b"x")
    blobs.write("files/ab/abcd", [b"whole"])
    old = ("arriving/old", "bundles/.new", "bundles/whole", "layers/.x", "jobs/checked", "jobs/trained")
    for name in (*old, "blobs/.parts/old", "blobs/files/ab/abcd"):
        aged(tmp_path / name, OLD_S + 1)
    assert clear_leftovers(tmp_path, blobs, database) == 5
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert left >= {
        "arriving/new", "bundles/whole", "jobs/trained/checkpoints", "blobs/files/ab/abcd",
    }  # fmt: skip
    assert not left & {"arriving/old", "bundles/.new", "layers/.x", "jobs/checked", "blobs/.parts/old"}


def test_the_rows_of_a_job_that_has_waited_for_days_stay(tmp_path: Path, database: Database) -> None:
    with database.write() as session:
        queued = Job(
            job_id="ft-waits",
            name="j",
            status=JobStatus.QUEUING,
            model="m",
            config={},
            created_at=datetime.now(UTC),
        )
        create_job(session, queued)
    for job_id in ("ft-waits", "ft-never-was"):
        (tmp_path / "jobs" / job_id / "data").mkdir(parents=True)
        aged(tmp_path / "jobs" / job_id, OLD_S + 1)
    assert clear_leftovers(tmp_path, Blobs(str(tmp_path / "blobs")), database) == 1
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["ft-waits"]


def test_a_blob_that_is_being_written_lies_on_the_stores_own_disk_and_leaves_nothing(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path / "blobs"))
    sink = blobs.begin("files/ab/abcd")
    sink.write(b"half")
    (part,) = (tmp_path / "blobs" / ".parts").iterdir()
    assert part.stat().st_dev == (tmp_path / "blobs").stat().st_dev
    assert not blobs.exists("files/ab/abcd")
    sink.discard()
    assert list((tmp_path / "blobs" / ".parts").iterdir()) == []
    assert blobs.write("files/ab/abcd", [b"whole"]).size == 5
    with blobs.open("files/ab/abcd") as file:
        assert file.read() == b"whole"
    assert list((tmp_path / "blobs" / ".parts").iterdir()) == []
