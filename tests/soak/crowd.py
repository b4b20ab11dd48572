"""Many clients at once on mixed calls -> how long each kind took; no 5xx, and no answered write lost.

`python -m soak.crowd 50 120`: clients, seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp

from fakes.server import FUNCTIONS, ROWS, json_lines, zipped

TESTS = Path(__file__).parents[1]


@dataclass(slots=True, kw_only=True)
class Seen:
    """`seconds` by kind of call; `wrong`: what no client should have seen."""

    clients: int
    statuses: Counter[int] = field(default_factory=Counter[int])
    seconds: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    writes: int = 0
    wrong: list[str] = field(default_factory=list[str])

    def share(self, part: float, kind: str | None = None) -> float:
        """The time, in seconds, within which that part of the calls was answered."""
        every = sorted(one for name, times in self.seconds.items() if kind in (None, name) for one in times)
        return every[min(len(every) - 1, int(part * len(every)))]

    @property
    def calls(self) -> int:
        return sum(map(len, self.seconds.values()))


class Client:
    """One of the crowd: it remembers what the server has said it did."""

    def __init__(self, number: int, url: str, session: aiohttp.ClientSession, seen: Seen, seed: int) -> None:
        self._number, self._url, self._session, self._seen = number, url, session, seen
        self._chance = random.Random(seed * 1000 + number)
        self._count = 0
        self.files: dict[str, str] = {}
        self.gone: set[str] = set()
        self.jobs: dict[str, str] = {}
        self.functions: dict[str, str] = {}

    async def work(self, until: float) -> None:
        rows = await self._upload(json_lines(ROWS))
        await self._register()
        kinds: list[tuple[float, Callable[[], Awaitable[Any]]]] = [
            (8, self._read), (4, self._look_at_job), (4, self._new_file), (1, self._forget_file),
            (1, self._register), (1, lambda: self._submit(rows)), (1, self._follow), (1, self._cancel),
        ]  # fmt: skip
        weights, calls = zip(*kinds, strict=True)
        while time.monotonic() < until:
            await self._chance.choices(calls, weights)[0]()

    async def call(self, kind: str, method: str, path: str, **more: Any) -> tuple[int, Any]:
        began = time.monotonic()
        url = path if path.startswith("http") else f"{self._url}/api/v1{path}"
        try:
            async with self._session.request(method, url, **more) as reply:
                text = await reply.text()
        except aiohttp.ClientError as error:
            self._seen.wrong.append(f"{kind}: {type(error).__name__}: {error}")
            return 0, {}
        self._seen.seconds.setdefault(kind, []).append(time.monotonic() - began)
        self._seen.statuses[reply.status] += 1
        if reply.status >= 500:
            self._seen.wrong.append(f"{kind}: {reply.status} {text[:300]}")
        return reply.status, json.loads(text) if reply.content_type == "application/json" else {}

    async def _upload(self, content: bytes) -> str:
        form = aiohttp.FormData()
        form.add_field("files", content, filename=f"{self._number}.jsonl")
        status, body = await self.call("upload a file", "POST", "/files", data=form)
        if status != 200:
            return ""
        file_id = body["data"]["uploaded_files"][0]["file_id"]
        self.files[file_id] = sha256(content).hexdigest()
        self._seen.writes += 1
        return file_id

    async def _new_file(self) -> None:
        self._count += 1
        await self._upload(b'{"client": %d, "count": %d}\n' % (self._number, self._count))

    async def _forget_file(self) -> None:
        if len(self.files) > 2:
            file_id = list(self.files)[-1]
            status, _ = await self.call("delete a file", "DELETE", f"/files/{file_id}")
            if status == 200:
                del self.files[file_id]
                self.gone.add(file_id)
                self._seen.writes += 1

    async def _register(self) -> None:
        self._count += 1
        key = {"unique_key": f"reward-{self._number}-{self._count}"}
        status, body = await self.call(
            "ask for an upload URL", "POST", "/fine-tunes/generate/faas/upload/url", json=key
        )
        if status != 200:
            return
        content = zipped({"functions.py": FUNCTIONS})
        status, _ = await self.call("upload code", "PUT", body["output"]["url"], data=content)
        asked = {"name": "functions.py", "func": "Score", **key}
        status, body = await self.call("register a function", "POST", "/fine-tunes/create/reward", json=asked)
        if status == 200:
            self.functions[body["output"]["reward_id"]] = key["unique_key"]
            self._seen.writes += 1

    async def _submit(self, rows: str) -> None:
        body = {
            "model": "smollm2-135m",
            "training_datasets": [{"file_id": rows}],
            "rewards": [{"reward_id": next(iter(self.functions))}],
            "hyper_parameters": {"batch_size": 4, "n_rollouts": 2},
            "job_name": self._chance.choice(("quick", "waits")),
        }
        status, told = await self.call("submit a job", "POST", "/fine-tunes", json=body)
        if status == 200:
            self.jobs[told["output"]["job_id"]] = "PENDING"
            self._seen.writes += 1

    async def _cancel(self) -> None:
        waiting = [one for one, status in self.jobs.items() if status == "PENDING"]
        if waiting:
            job_id = self._chance.choice(waiting)
            status, _ = await self.call("cancel a job", "POST", f"/fine-tunes/{job_id}/cancel")
            if status in (200, 409):
                self.jobs[job_id] = "CANCELED" if status == 200 else "ended"
                self._seen.writes += 1

    async def _read(self) -> None:
        path = self._chance.choice(("/files", "/fine-tunes", "/models", "/functions", "/deployments"))
        await self.call(f"list {path[1:]}", "GET", path)

    async def _look_at_job(self) -> None:
        if self.jobs:
            job_id = self._chance.choice(list(self.jobs))
            what = self._chance.choice(("", "/events", "/metrics", "/logs", "/checkpoints", "/trajectories"))
            await self.call("look at a job", "GET", f"/fine-tunes/{job_id}{what}")

    async def _follow(self) -> None:
        """A stream of a job that has ended, which says all and ends."""
        ended = [one for one, status in self.jobs.items() if status != "PENDING"]
        if ended:
            job_id = self._chance.choice(ended)
            await self.call("follow an ended job", "GET", f"/fine-tunes/{job_id}/stream")

    async def check(self) -> None:
        """Raises AssertionError where something answered is not so."""
        for file_id, digest in self.files.items():
            status, body = await self.call("check", "GET", f"/files/{file_id}")
            assert (status, body["data"]["sha256"]) == (200, digest), f"lost: {file_id}"
        for file_id in self.gone:
            assert (await self.call("check", "GET", f"/files/{file_id}"))[0] == 404, f"came back: {file_id}"
        for entity_id in self.functions:
            assert (await self.call("check", "GET", f"/functions/{entity_id}"))[0] == 200, entity_id
        for job_id, expected in self.jobs.items():
            status, body = await self.call("check", "GET", f"/fine-tunes/{job_id}")
            assert status == 200, f"lost: {job_id}"
            if expected == "CANCELED":
                assert body["output"]["status"] in ("CANCELED", "CANCELING"), body


async def crowd(clients: int, seconds: float, *, seed: int = 0) -> Seen:
    """Raises AssertionError where a write was lost."""
    seen = Seen(clients=clients)
    async with served() as (url, key):
        headers = {"authorization": f"Bearer {key}"}
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout) as session:
            people = [Client(number, url, session, seen, seed) for number in range(clients)]
            until = time.monotonic() + seconds
            await asyncio.gather(*(one.work(until) for one in people))
            timed = {kind: list(times) for kind, times in seen.seconds.items()}
            for one in people:
                await one.check()
            seen.seconds = timed
    return seen


@asynccontextmanager
async def served() -> AsyncIterator[tuple[str, str]]:
    root = Path(tempfile.mkdtemp(prefix="strop-soak-"))
    command = [sys.executable, "-m", "fakes.serve", str(root / "home")]
    paths = os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
    with subprocess.Popen(  # noqa: ASYNC220 - before any client is there
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "PIP_NO_INDEX": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            told = json.loads(await asyncio.to_thread(process.stdout.readline))
            yield told["url"], told["key"]
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                await asyncio.to_thread(process.wait, 60)
            finally:
                process.kill()
                shutil.rmtree(root, ignore_errors=True)


def told(seen: Seen, seconds: float) -> str:
    """The figures as lines for the log."""

    def ms(part: float, kind: str | None = None) -> str:
        return f"{seen.share(part, kind) * 1000:.0f}"

    rows = [
        f"| {kind} | {len(times)} | {ms(0.5, kind)} | {ms(0.95, kind)} |"
        for kind, times in sorted(seen.seconds.items())
    ]
    head = (
        f"{seen.clients} clients at once for {seconds:.0f} s: {seen.calls} calls, "
        f"{seen.calls / seconds:.0f} a second, statuses {dict(seen.statuses)}, {seen.writes} writes and none "
        f"lost; p50 {ms(0.5)} ms, p95 {ms(0.95)} ms, p99 {ms(0.99)} ms"
    )
    return "\n".join([head, "", "| call | times | p50, ms | p95, ms |", "|---|--:|--:|--:|", *rows])


if __name__ == "__main__":
    wanted = float(sys.argv[2])
    found = asyncio.run(crowd(int(sys.argv[1]), wanted))
    print(told(found, wanted))
    print(*found.wrong[:20], sep="\n")
    sys.exit(bool(found.wrong))
