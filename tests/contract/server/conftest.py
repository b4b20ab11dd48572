"""A control plane in the test's own home."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from fakes.server import Server, serving
from strop.store.home import home


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server") / "home") as made:
        yield made


@pytest.fixture
def server(shared_server: Server, quiet_log: None) -> Server:
    """One for all tests of a file: they do not meet in it, but for lists and counts."""
    return shared_server


@pytest.fixture
def own_server(quiet_log: None) -> Iterator[Server]:
    """One that nobody else has used."""
    with serving(home()) as made:
        yield made


@pytest.fixture
def quiet_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing may go wrong unseen: what the server logs as an error fails the test."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
