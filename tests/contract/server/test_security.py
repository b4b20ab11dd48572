"""What a hostile user or page tries that is no single bad input: floods, slowness, forgery, prying."""

from __future__ import annotations

import json
import logging
import os
import socket
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import aiohttp
import httpx
import pytest

from fakes.running import Running
from fakes.server import FUNCTIONS, Server, eventually, serving
from strop.doors.connections import HeaderTimeoutProtocol
from strop.service.settings import Limits
from strop.store.home import home

SECRET = "sk-judge-0123456789abcdef"

TELLTALE = FUNCTIONS + (
    "\n\nclass Telltale(AbstractRewardProcessor):\n"
    "    def process(self, input):\n"
    "        import os\n"
    "        print('the key is', os.environ['JUDGE_KEY'])\n"
    "        raise RuntimeError('refused: ' + os.environ['JUDGE_KEY'])\n"
)


def test_a_secret_that_a_function_prints_and_raises_is_shown_nowhere(server: Server) -> None:
    entity = server.register("reward", "Telltale", source=TELLTALE)
    made = server.post(f"/fine-tunes/online/faas/jobId-1/{entity}", {"env": {"JUDGE_KEY": SECRET}})
    headers = {"authorization": f"Bearer {made['trigger_token']}"}
    body = {"agent_output": {"messages": []}}
    reply = httpx.post(f"{made['trigger_url']}/api/v1", json=body, headers=headers, timeout=60)
    assert (reply.status_code, reply.json()["message"].count("***")) == (500, 1)
    path = f"/fine-tunes/query/faas/log/{made['instanceId']}"
    lines = eventually(lambda: server.post(path, {})["log_entries"])
    assert lines[0]["message"] == "the key is ***"
    shown = [reply.text, json.dumps(lines), json.dumps(made), json.dumps(server.get("/functions"))]
    assert all(SECRET not in text for text in shown)


async def test_a_flood_of_streams_is_bounded_and_starves_nobody(server: Server) -> None:
    job_id = server.submit(job_name="waits")
    url = f"{server.api}/fine-tunes/{job_id}/stream"
    headers = {"authorization": f"Bearer {server.key}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        streams = [await session.get(url) for _ in range(100)]
        assert {one.status for one in streams} == {200}
        for one in streams:
            await one.content.readline()
        async with session.get(url) as refused:
            assert (refused.status, refused.headers["content-type"]) == (429, "application/json")
            assert "100 event streams" in (await refused.json())["message"]
        async with session.post(f"{server.api}/fine-tunes/{job_id}/cancel") as canceled:
            assert canceled.status == 200
        for one in streams:
            assert b"CANCELED" in await one.content.read()
        async with session.get(url) as again:
            assert again.status == 200
    assert server.becomes(job_id, "CANCELED")


def sent(server: Server, content: bytes) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.sendall(content)
    return connection


def head(server: Server, method: str, path: str, **more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: x", f"authorization: Bearer {server.key}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def test_a_body_that_stops_coming_is_ended_with_a_408(quiet_log: None) -> None:
    with serving(home(), limits=Limits(body_silence_s=0.2)) as server:
        asked = head(
            server, "POST", "/api/v1/fine-tunes", content_type="application/json", content_length="100"
        )
        with closing(sent(server, asked + b'{"model"')) as connection:
            reply = b"".join(iter(lambda: connection.recv(65536), b""))
        assert reply.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"RequestTimeout"' in reply
        assert b"no byte of the body came for 0.2 s" in reply
        assert server.http.get("/files").status_code == 200


def test_a_head_that_does_not_end_and_a_client_that_says_nothing_are_hung_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeaderTimeoutProtocol, "head_s", 0.2)
    for said in (b"", b"GET /healthz HTTP/1.1\r\nx-slow: "):
        with closing(sent(server, said)) as connection:
            assert connection.recv(100) == b""
    two = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    with closing(sent(server, two)) as connection:  # a second head on a connection that is kept
        reply = b""
        while not reply.endswith(b"}"):  # head and body may come one after the other
            more = connection.recv(65536)
            assert more, reply
            reply += more
        assert reply.startswith(b"HTTP/1.1 200 ")
        connection.sendall(two[:-10])
        assert connection.recv(100) == b""


@pytest.mark.parametrize("path", ["/api/v1/files", "/uploads"])
def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing(
    own_server: Server, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    target, more = path, {"content_type": "multipart/form-data; boundary=b"}
    if path == "/uploads":
        url = own_server.post("/fine-tunes/generate/faas/upload/url", {"unique_key": "reward-1"})["url"]
        target, more = url.removeprefix(own_server.url), {}
    part = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n' + b"x" * 100_000
    method = "POST" if more else "PUT"
    begun = head(own_server, method, target, content_length="9000000", **more) + part
    with closing(sent(own_server, begun)):
        eventually(lambda: more or list((own_server.home / "arriving").glob("*")))
    eventually(lambda: list((own_server.home / "arriving").glob("*")) == [])
    assert own_server.http.get("/files").json()["data"]["total"] == 0
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


def test_a_body_beyond_its_limit_is_no_failure_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    with serving(home(), limits=Limits(body_bytes=1000)) as server:
        reply = server.http.post(
            "/fine-tunes", content=iter([b"x" * 600] * 3), headers={"content-type": "application/json"}
        )
        assert reply.status_code == 413
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


def test_a_page_of_another_site_can_neither_read_nor_write(server: Server) -> None:
    evil = {"origin": "https://evil.example", "referer": "https://evil.example/", "host": "rebound.example"}
    with httpx.Client(base_url=server.url, headers=evil) as page:
        form = page.post("/api/v1/fine-tunes", content=b"a=b", headers={"content-type": "text/plain"})
        asked = page.request(
            "OPTIONS", "/api/v1/fine-tunes", headers={"access-control-request-method": "POST"}
        )
        cookie = page.get("/api/v1/files", headers={"cookie": f"key={server.key}"})
        in_query = page.get("/api/v1/files", params={"api_key": server.key, "key": server.key})
        health = page.get("/healthz")
    assert [form.status_code, asked.status_code, cookie.status_code, in_query.status_code] == [401] * 4
    for reply in (form, asked, cookie, in_query, health):
        assert not [name for name in reply.headers if name.startswith("access-control-")]


def test_no_reply_sends_a_client_to_the_host_that_it_named(server: Server) -> None:
    for path in ("/api/v1/files/", "/api/v1/fine-tunes/", "/docs/", "/metrics/"):
        reply = server.http.get(server.url + path, headers={"host": "evil.example"})
        assert (reply.status_code, "location" in reply.headers) == (404, False)


def test_behind_a_proxy_addresses_are_the_public_ones_whatever_host_is_named() -> None:
    with serving(home(), public_url="https://strop.example.com") as server:
        asked = {"unique_key": "reward-1"}
        reply = server.http.post(
            "/fine-tunes/generate/faas/upload/url", json=asked, headers={"host": "evil.example"}
        )
        assert reply.json()["output"]["url"].startswith("https://strop.example.com/uploads/default/reward-1?")


def test_what_a_server_keeps_is_its_users_alone_and_a_second_one_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "home"
    place.mkdir(mode=0o755)
    with Running("up", "--port", 0, home=place) as first:
        url = first.says("Strop is up: open ").split()[4]
        key = (place / "api_key").read_text().strip()
        with httpx.Client(base_url=f"{url}/api/v1", headers={"authorization": f"Bearer {key}"}) as client:
            eventually(lambda: client.get("/files").status_code == 200)
            client.post("/files", files={"files": ("a.jsonl", b"{}\n")}).raise_for_status()
        open_to_others = [
            path.relative_to(place)
            for path in place.rglob("*")
            if stat.S_IMODE(path.stat().st_mode) & 0o077 and not path.is_symlink()
        ]
        assert open_to_others == []
        again = subprocess.run(
            [sys.executable, "-m", "strop.cli", "up", "--port", "0"],
            env={**os.environ, "STROP_HOME": str(place), "STROP_LANG": "en"},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert again.returncode != 0
        assert f"runs already at {url} (process {first.process.pid})" in again.stderr
        assert "STROP_HOME=/another/folder" in again.stderr
        assert "Traceback" not in again.stderr
        assert (place / "server.json").is_file()
        first.kill()
    with Running("up", "--port", 0, home=place) as second:  # its end, however it came, has freed the home
        second.says("Strop is up: open ")
