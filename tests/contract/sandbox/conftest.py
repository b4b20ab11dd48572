"""`strop sandbox` as a process of its own, for all tests of this folder: as a user has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest


@dataclass(frozen=True)
class RunningSandbox:
    """Its address, and a client of it."""

    url: str
    client: httpx.Client

    def run(self, code: str, language: str = "python", **more: Any) -> dict[str, Any]:
        reply = self.client.post("/run_code", json={"code": code, "language": language, **more})
        assert reply.status_code == 200, reply.text
        return reply.json()


@pytest.fixture(scope="session")
def sandbox() -> Iterator[RunningSandbox]:
    command = [sys.executable, "-m", "strop.cli", "sandbox", "--port", "0"]
    env = {**os.environ, "STROP_LANG": "en"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" at ")[1].split()[0]
        try:
            with httpx.Client(base_url=url, timeout=120) as client:
                yield RunningSandbox(url, client)
        finally:
            process.terminate()
            assert process.wait(30) == 0
