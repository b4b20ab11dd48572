"""Runs by the thousand against one sandbox: does what it holds (memory, files, processes, groups) stay flat?

    PYTHONPATH=tests python -m soak.sandbox --runs 20000 [--concurrency 8]

Prints a line every five hundred runs and a last one with what was gained from the first to the last.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

KINDS = (
    ("print(int(input()) * 2)", {"stdin": "21"}, "42\n", "Success"),
    ("import os; open('/tmp/x', 'w').write('x' * 100000); print(1)", {}, "1\n", "Success"),
    ("raise ValueError", {}, "", "Failed"),
    ("import os, time\nif os.fork() == 0: time.sleep(60)\nprint(1, flush=True); os._exit(0)", {}, "1\n", "Success"),  # noqa: E501
    ("import time; time.sleep(5)", {"run_timeout": 0.05}, "", "Failed"),
)  # fmt: skip


def holdings(pid: int) -> dict[str, int]:
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    children = sum(
        1
        for path in Path("/proc").glob("[0-9]*/stat")
        if (text := _read(path)) and int(text.rpartition(")")[2].split()[1]) == pid
    )
    groups = len(list(Path("/sys/fs/cgroup").glob(f"**/strop-sandbox-{pid}/box-*")))
    return {
        "resident_kib": resident,
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "children": children,
        "groups": groups,
    }


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--limit-s", type=float, default=1e9)
    asked = parser.parse_args()
    command = [sys.executable, "-m", "strop.cli", "sandbox", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split(" at ")[1].split()[0]
        try:
            soak(url, server.pid, asked)
        finally:
            server.terminate()


def soak(url: str, pid: int, asked: argparse.Namespace) -> None:
    wrong = 0
    begun = time.monotonic()
    first: dict[str, int] = {}

    def run(number: int) -> bool:
        code, more, stdout, status = KINDS[number % len(KINDS)]
        reply = client.post("/run_code", json={"code": code, "language": "python", **more}).json()
        return reply["status"] == status and reply["run_result"]["stdout"] == stdout

    done = 0
    with httpx.Client(base_url=url, timeout=300) as client, ThreadPoolExecutor(asked.concurrency) as callers:
        while done < asked.runs and time.monotonic() - begun < asked.limit_s:
            size = min(500, asked.runs - done)
            wrong += size - sum(callers.map(run, range(size)))
            done += size
            held = holdings(pid)
            first = first or held
            print(
                json.dumps({"runs": done, "wrong": wrong, "s": round(time.monotonic() - begun), **held}),
                flush=True,
            )
    gained = {name: held[name] - first[name] for name in held}
    print(json.dumps({"runs": done, "wrong": wrong, "gained_since_first_500": gained}))


if __name__ == "__main__":
    main()
