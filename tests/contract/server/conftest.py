"""A control plane in the test's own home."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from fakes.server import Server, serving
from strop.store.home import home


@pytest.fixture
def server(caplog: pytest.LogCaptureFixture) -> Iterator[Server]:
    """Nothing may go wrong unseen: what the server logs as an error fails the test."""
    with serving(home()) as made:
        yield made
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
