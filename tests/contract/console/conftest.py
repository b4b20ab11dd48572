"""The console of a control plane whose store holds a recorded job, and a browser that has signed in."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import httpx
import pytest

from fakes.console import record_job
from fakes.postgres import Postgres
from fakes.server import Server, serving


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """What a page asks of the store is asked of both kinds."""
    url: str | None = None
    if request.param == "postgresql":
        cluster: Postgres = request.getfixturevalue("cluster")
        url = cluster.url(cluster.database())
    with serving(tmp_path_factory.mktemp("console") / "home", supervise=False, database_url=url) as made:
        record_job(made.database, "ft-1")
        record_job(made.database, "ft-2", name="second")
        yield made


@pytest.fixture
def server(shared_server: Server, caplog: pytest.LogCaptureFixture) -> Iterator[Server]:
    yield shared_server
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.fixture
def stranger(server: Server) -> Iterator[httpx.Client]:
    """A browser that nobody signed in."""
    headers = {"accept": "text/html", "origin": server.url, "sec-fetch-site": "same-origin"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
        yield client


@pytest.fixture
def browser(server: Server, stranger: httpx.Client) -> httpx.Client:
    """One that has."""
    reply = stranger.post("/console/sign-in", data={"key": server.key})
    assert reply.status_code == 303
    return stranger


def csrf(page: str) -> str:
    """The token of the page's forms."""
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None
    return found[1]
