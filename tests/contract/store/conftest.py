"""A real database of the test's own, SQLite and PostgreSQL in turn, and a job in it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from strop.schema.job import Job, JobStatus
from strop.store.database import Database, open_database
from strop.store.jobs import create_job


@pytest.fixture
def database(own_database: None) -> Iterator[Database]:
    opened = open_database()
    yield opened
    opened.close()


@pytest.fixture
def job(database: Database) -> Job:
    made = Job(
        job_id="job-1",
        name="calculator",
        status=JobStatus.PENDING,
        model="smollm2-135m",
        config={"training": {"hyper_parameters": {"learning_rate": 1e-6}}, "env": "***"},
        created_at=datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC),
    )
    with database.write() as session:
        create_job(session, made)
    return made
