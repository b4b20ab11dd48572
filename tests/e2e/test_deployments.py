"""A server, replicas and the official client, each a process; and what is left when they are killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from fakes.model import save_tiny_model
from fakes.server import eventually
from strop.store.database import open_database
from strop.store.home import KEY_FILE, home
from strop.store.models import register_model

pytestmark = pytest.mark.slow

START_S = 120.0
"""Seconds a replica may take: it imports torch, beside whatever else the machine does."""


class Up:
    """`strop up`, which can be killed and started again on the same home and port."""

    def __init__(self) -> None:
        self.port = 0
        self.start()
        self.key = (home() / KEY_FILE).read_text().strip()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "strop.cli", "up", "--port", str(self.port)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "STROP_LANG": "en", "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                break
        eventually(lambda: self.answers("/healthz"), within_s=START_S)

    def answers(self, path: str) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}{path}").status_code == 200
        except httpx.TransportError:
            return False

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(30)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def output(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        url, headers = f"http://127.0.0.1:{self.port}/api/v1{path}", {"authorization": f"Bearer {self.key}"}
        reply = httpx.request(method, url, json=body, headers=headers, timeout=30)
        return reply.json().get("output", {"status": str(reply.status_code)})

    def becomes(self, name: str, status: str, *, ready: int) -> None:
        def there() -> bool:
            shown = self.output("GET", f"/deployments/{name}")
            return (shown["status"], shown.get("ready_capacity", 0)) == (status, ready)

        eventually(there, within_s=START_S)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    folder = save_tiny_model(tmp_path / "tiny")
    with closing(open_database()) as database, database.write() as session:
        register_model(session, "tiny", str(folder))
    made = Up()
    yield made
    if made.process.poll() is None:
        made.end(signal.SIGTERM)
    eventually(lambda: replicas_of("tiny-a") == [], within_s=30)


def replicas_of(name: str) -> list[int]:
    """Processes that serve `name`, their reapers too."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in words and name.encode() in words:
                found.append(int(entry.name))
    return sorted(found)


def test_killed_replicas_come_back_and_a_killed_server_leaves_nothing_and_starts_them_again(up: Up) -> None:
    made = up.output("POST", "/deployments", {"model_name": "tiny", "suffix": "a", "capacity": 2})
    assert made["status"] == "PENDING"
    up.becomes("tiny-a", "RUNNING", ready=2)
    ask: dict[str, Any] = {"model": "tiny-a", "messages": [{"role": "user", "content": "hello"}]}
    with openai.OpenAI(base_url=f"http://127.0.0.1:{up.port}/v1", api_key=up.key, max_retries=0) as client:
        answer = client.chat.completions.create(**ask, max_tokens=5)
        assert answer.usage is not None
        assert 1 <= answer.usage.completion_tokens <= 5

        before = replicas_of("tiny-a")
        # Without an end token the answer fills the context, so both are still speaking when one is killed.
        streams = [client.chat.completions.create(**ask, stream=True, logprobs=True, n=16) for _ in range(2)]
        for stream in streams:
            next(iter(stream))
        os.kill(before[-1], signal.SIGKILL)
        outcomes = [outcome_of(stream) for stream in streams]
        assert sorted(outcomes) == ["answered", "lost"]

        up.becomes("tiny-a", "RUNNING", ready=2)
        assert len(set(replicas_of("tiny-a")) - set(before)) == 2  # a replica and its reaper
        client.chat.completions.create(**ask, max_tokens=5)

    up.end(signal.SIGKILL)
    eventually(lambda: replicas_of("tiny-a") == [], within_s=30)
    up.start()
    up.becomes("tiny-a", "RUNNING", ready=2)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{up.port}/v1", api_key=up.key) as client:
        client.chat.completions.create(**ask, max_tokens=5)
    assert up.output("DELETE", "/deployments/tiny-a")["status"] == "success"
    eventually(lambda: up.output("GET", "/deployments/tiny-a")["status"] == "404", within_s=40)
    assert replicas_of("tiny-a") == []


def outcome_of(stream: openai.Stream[Any]) -> str:
    try:
        for _ in stream:
            continue
    except openai.APIError as error:
        return "lost" if "was lost" in str(error) else str(error)
    return "answered"
