"""One sandbox for all tests of a process, behind a real HTTP server: boxes are what takes time."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import uvicorn

from strop_sandbox.app import create_app
from strop_sandbox.datasets import Datasets
from strop_sandbox.isolation import open_isolation
from strop_sandbox.sandbox import Sandbox, Settings
from strop_sandbox.sources import Allowed
from strop_sandbox.test_files import TestFiles
from strop_sandbox.toolchains import Toolchains

T = TypeVar("T")

PROBLEMS = [
    {
        "id": 1,
        "content": "Read two numbers, print their sum.",
        "labels": '{"level": 1}',
        "test": [
            {"input": {"stdin": "1 2\n"}, "output": {"stdout": "3\n"}},
            {"input": {"stdin": "5 7\n"}, "output": {"stdout": "12\n"}},
        ],
    },
    {
        "id": 2,
        "content": "Write add(a, b).",
        "labels": {"programming_language": "python"},
        "test": {"code": "assert add(2, 3) == 5"},
    },
]


@dataclass(frozen=True)
class Service:
    """A running sandbox: its address, and its event loop for tests that look inside."""

    url: str
    sandbox: Sandbox
    test_files: TestFiles
    tests: Path
    loop: asyncio.AbstractEventLoop
    client: httpx.Client

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)

    def run(self, code: str, language: str = "python", **more: Any) -> dict[str, Any]:
        reply = self.client.post("/run_code", json={"code": code, "language": language, **more})
        assert reply.status_code == 200, reply.text
        return reply.json()

    def submit(self, completion: str, test: Any, language: str = "python", **more: Any) -> httpx.Response:
        config = {
            "dataset_type": "CommonOJDataset",
            "language": language,
            "provided_data": {"test": test},
            **more,
        }
        body = {"dataset": "any", "id": 7, "completion": completion, "config": config}
        return self.client.post("/submit", json=body)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("problems")
    (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, PROBLEMS)))
    tests = tmp_path_factory.mktemp("tests")
    toolchains = Toolchains(sys.executable)
    sandbox = Sandbox(
        open_isolation(roots=toolchains.roots),
        toolchains,
        Settings(max_running=6, max_waiting=400, num_ready=4),
    )
    test_files = TestFiles(Allowed(hosts=(f"file://{tests}/",)))
    app = create_app(sandbox, datasets=Datasets(folder), test_files=test_files)
    with serving(app) as (url, loop), httpx.Client(base_url=url, timeout=120) as client:
        yield Service(url, sandbox, test_files, tests, loop, client)


class serving:
    """An app behind a free port, in a thread, for as long as the block lasts."""

    def __init__(self, app: Any) -> None:
        self._server = uvicorn.Server(
            uvicorn.Config(app, port=0, log_config=None, access_log=False, ws="none")
        )
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        startup = self._server.startup

        async def told(*arguments: Any, **more: Any) -> None:
            await startup(*arguments, **more)
            self._started.set()

        self._server.startup = told  # type: ignore[method-assign]
        try:
            self._loop.run_until_complete(self._server.serve())
        finally:
            self._started.set()
            self._loop.close()

    def __enter__(self) -> tuple[str, asyncio.AbstractEventLoop]:
        self._thread.start()
        assert self._started.wait(60)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}", self._loop

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(60)


@pytest.fixture
def serve() -> Callable[[Any], serving]:
    return serving
