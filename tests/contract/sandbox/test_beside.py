"""`strop up --sandbox-port`: the sandbox beside it answers before anybody is greeted, or says why it cannot."""

from __future__ import annotations

import socket

import httpx
import pytest

from strop.cli.up import sandbox_beside
from strop.errors import StropError


def test_it_answers_when_the_server_goes_on_and_ends_with_it(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with sandbox_beside(port):
        assert httpx.get(f"http://127.0.0.1:{port}/v1/ping").json() == "pong"
    assert f":{port}" in capfd.readouterr().out
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/v1/ping")


def test_a_port_that_is_taken_stops_the_server_before_it_greets() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(StropError, match="before it answered") as refused,
        sandbox_beside(taken.getsockname()[1]),
    ):
        pytest.fail("it went on without its sandbox")
    assert "--sandbox-port" in str(refused.value)


def test_without_setpriv_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(StropError, match="setpriv") as refused, sandbox_beside(1):
        pytest.fail("it went on without its sandbox")
    assert "util-linux" in str(refused.value)
