"""Runs by the thousand against one sandbox: does what it holds (memory, files, processes, groups) stay flat?

    PYTHONPATH=tests python -m soak.sandbox --runs 20000 [--concurrency 8]

Some kinds are near their limits, so that load shows in their verdicts. Prints a line every thousand runs and
a last one with what was gained since the first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

PART = 1000
COMPUTE = "import time\nwhile time.process_time() < {}: pass\nprint(1)"
KINDS: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("print(int(input()) * 2)", {"stdin": "21"}, "42\n", "Success"),
    ("import os; open('/tmp/x', 'w').write('x' * 100000); print(1)", {}, "1\n", "Success"),
    ("raise ValueError", {}, "", "Failed"),
    ("import os, time\nif os.fork() == 0: time.sleep(60)\nprint(1, flush=True); os._exit(0)", {}, "1\n", "Success"),  # noqa: E501
    ("import time; time.sleep(5)", {"run_timeout": 0.05}, "", "Failed"),
    ("print('x' * 200000)", {}, "x" * 200000 + "\n", "Success"),
    (COMPUTE.format(0.05), {"run_timeout": 0.15}, "1\n", "Success"),
    ("while True: pass", {"run_timeout": 0.05}, "", "Failed"),
    ("x = bytearray(200 << 20)", {"memory_limit_MB": 64}, "", "Failed"),
    ("print(1)", {"files": {"a/b.txt": "eA=="}, "fetch_files": ["a/b.txt"]}, "1\n", "Success"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Soaked:
    """What came of it. `first` and `last` are what the server held when nothing ran."""

    runs: int
    wrong: int
    seconds: float
    first: dict[str, int]
    last: dict[str, int]

    def grown(self) -> dict[str, int]:
        return {name: self.last[name] - self.first[name] for name in self.last}


def soak_sandbox(runs: int, *, concurrency: int = 8, tell: bool = False) -> Soaked:
    """Start a sandbox, run that many programs and look at what it holds after each part."""
    command = [sys.executable, "-m", "strop.cli", "sandbox", "--port", "0"]
    with tempfile.TemporaryDirectory(prefix="strop-soak-") as own:  # others' files are not counted
        env = {**os.environ, "STROP_LANG": "en", "TMPDIR": own}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as server:
            assert server.stdout is not None
            try:
                url = server.stdout.readline().split(" at ")[1].split()[0]
                return _soak(url, server.pid, Path(own), runs, concurrency, tell)
            finally:
                server.terminate()


def _soak(url: str, pid: int, folder: Path, runs: int, concurrency: int, tell: bool) -> Soaked:
    wrong, done = 0, 0
    begun = time.monotonic()
    first: dict[str, int] = {}
    held: dict[str, int] = {}
    with httpx.Client(base_url=url, timeout=300) as client, ThreadPoolExecutor(concurrency) as callers:
        while done < runs:
            size = min(PART, runs - done)
            wrong += size - sum(callers.map(lambda number: _right(client, number), range(size)))
            done += size
            _rest(client)
            held = holdings(pid, folder)
            first = first or held
            if tell:
                told = {"runs": done, "wrong": wrong, "s": round(time.monotonic() - begun), **held}
                print(json.dumps(told), flush=True)
    return Soaked(runs=done, wrong=wrong, seconds=time.monotonic() - begun, first=first, last=held)


def _right(client: httpx.Client, number: int) -> bool:
    code, more, stdout, status = KINDS[number % len(KINDS)]
    reply = client.post("/run_code", json={"code": code, "language": "python", **more}).json()
    if reply["status"] == status and reply["run_result"]["stdout"] == stdout:
        return True
    print(f"{code!r}: {str(reply)[:500]}", file=sys.stderr, flush=True)
    return False


def _rest(client: httpx.Client) -> None:
    """Wait until nothing runs and the pool is full again."""
    before = -1.0
    while True:
        gauges = dict(
            line.split() for line in client.get("/metrics").text.splitlines() if not line.startswith("#")
        )
        ready = float(gauges["strop_sandbox_boxes_ready"])
        if float(gauges["strop_sandbox_running"]) == 0 and ready == before:
            return
        before = ready
        time.sleep(1.0)


def holdings(pid: int, folder: Path) -> dict[str, int]:
    """Of the server: memory, open files, processes below it, control groups, files in `folder`, its own."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    groups = len(list(Path("/sys/fs/cgroup").glob(f"**/strop-sandbox-{pid}/box-*")))
    return {
        "resident_kib": resident,
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "processes": len(_below(pid)),
        "groups": groups,
        "temporary_files": sum(1 for _ in folder.rglob("*")),
    }


def _below(pid: int) -> set[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        if text := _read(path):
            parents[int(path.parent.name)] = int(text.rpartition(")")[2].split()[1])
    found: set[int] = set()
    while more := {one for one, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=8)
    asked = parser.parse_args()
    soaked = soak_sandbox(asked.runs, concurrency=asked.concurrency, tell=True)
    print(json.dumps({"runs": soaked.runs, "wrong": soaked.wrong, "grown": soaked.grown()}))


if __name__ == "__main__":
    main()
