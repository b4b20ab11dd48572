"""The databases that the contracts hold on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.postgres import MIGRATED, Postgres, postgres
from fakes.programs import program


@pytest.fixture(scope="session")
def cluster() -> Iterator[Postgres]:
    """A PostgreSQL of this session's own."""
    with postgres(Path(program("initdb")).parent) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    """On which database the test runs: on each in turn."""
    return request.param


@pytest.fixture
def new_database(
    dialect: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The environment names a database that nobody has opened yet."""
    if dialect == "sqlite":  # one below the test's own STROP_HOME
        yield
        return
    cluster: Postgres = request.getfixturevalue("cluster")
    name = cluster.database()
    monkeypatch.setenv("STROP_DATABASE_URL", cluster.url(name))
    yield
    cluster.drop(name)


@pytest.fixture
def own_database(
    dialect: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The environment names a database that has nothing in it but its tables."""
    if dialect == "sqlite":
        yield
        return
    cluster: Postgres = request.getfixturevalue("cluster")
    monkeypatch.setenv("STROP_DATABASE_URL", cluster.url(MIGRATED))
    yield
    cluster.empty(MIGRATED)
