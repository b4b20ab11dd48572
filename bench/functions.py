"""`python -m bench.functions` -> requests a second of one reward function: ours, DashScope's, Ray Serve's.

One process serves each, the same client (`wrk`, 64 connections) asks each in turn, in one run. DashScope's
container stands there twice: as its package installs it, and with the parser and event loop that
`uvicorn[standard]` brings, which is fairer to it than its package is. Then the workers of an instance under a
step of load, from none to many to none. `bash bench/setup_functions.sh` makes what it needs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.contender import ROOT
from bench.figures import alternate, load_average, machine, round_ratios, spread, table
from strop.processes.watch import descendants
from strop.schema.function import AgentOutput, RewardInput
from strop.workers.instance import Instance, new_client
from strop.workers.masking import Mask
from strop.workers.process import WorkerProcess
from strop.workers.size import PoolSize
from strop.workers.spec import WorkerSpec

LOG = ROOT / "docs" / "log.md"
RAY = Path(__file__).with_name(".venv-ray") / "bin" / "python"
STANDARD = Path(__file__).with_name(".venv-standard")
"""httptools and uvloop, alone in a folder."""
NUM_CONNECTIONS = 64
# A reward as DashScope's development guide writes it: the same file in all three.
REWARD = """
import json

from dashscope.finetune.reinforcement import AbstractRewardProcessor, Reward, RewardOutput, TaskStatus


class Contains(AbstractRewardProcessor):
    async def process(self, input):
        content = input.agent_output.messages[-1].get("content", "")
        score = 1.0 if input.ground_truth in content else 0.0
        reward = Reward(reward_score=score, reward_metrics={"length": float(len(content))})
        return RewardOutput(reward=reward, status=TaskStatus.SUCCESS)
"""
# Ray Serve knows nothing of DashScope's classes: the same score from and to the same JSON, and no checks.
DEPLOYMENT = """
import sys, time

from ray import serve


@serve.deployment(num_replicas=1, max_ongoing_requests=100)
class Contains:
    async def __call__(self, request):
        input = await request.json()
        content = input["agent_output"]["messages"][-1].get("content", "")
        score = 1.0 if input["ground_truth"] in content else 0.0
        reward = {"reward_score": score, "reward_metrics": {"length": float(len(content))}}
        return {"reward": reward, "status": "success", "error": None, "error_code": None}


serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])}, proxy_location="HeadOnly")
serve.run(Contains.bind(), route_prefix="/api/v1")
print("ready", flush=True)
sys.stdin.read()
"""
CALL = {
    "func_type": "reward",
    "ground_truth": "925",
    "agent_output": {
        "messages": [
            {"role": "user", "content": "What is 762 + 163? Think step by step."},
            {
                "role": "assistant",
                "content": "762 + 163: first the hundreds, 862, then the rest. " * 8 + "925",
            },
        ],
        "rollout_extra": {"ground_truth": "925"},
    },
}
EXPECTED = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Where one of them answers."""

    url: str
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What wrk counted, and what the server's processes used meanwhile."""

    per_s: float
    p50_ms: float
    p95_ms: float
    errors: int
    cpu_ms: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.functions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (default 3)")
    parser.add_argument("--seconds", type=int, default=5, help="of each turn (default 5)")
    parser.add_argument("--no-log", action="store_true", help="print the entry, but leave docs/log.md alone")
    parser.add_argument(
        "--only", nargs="*", default=None, help="some of ours, container, standard, ray, scaling"
    )
    arguments = parser.parse_args()
    before = load_average()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "rewards.py").write_text(REWARD)
        chosen = arguments.only or ["ours", "container", "standard", "ray", "scaling"]
        parts = [_heading(), _conditions(before)]
        served = [name for name in chosen if name != "scaling"]
        if served:
            parts.append(asyncio.run(_throughput(folder, served, arguments.rounds, arguments.seconds)))
        if "scaling" in chosen:
            parts.append(asyncio.run(_scaling(folder)))
    entry = "\n\n".join(parts) + "\n"
    print("\n" + entry)
    if not arguments.no_log:
        with LOG.open("a") as log:
            log.write("\n" + entry)


async def _throughput(folder: Path, names: list[str], rounds: int, seconds: int) -> str:
    """Ray's processes take time also while nobody asks them: what is one process is measured without them."""
    single = [name for name in names if name != "ray"]
    rows = _rows(await _rates(folder, single, rounds, seconds))
    if "ray" in names:
        beside = [name for name in names if name in ("ours", "ray")]
        rows += _rows(await _rates(folder, beside, rounds, seconds), " beside Ray's processes")
    head = [
        "one reward function",
        "requests/s",
        "p50 ms",
        "p95 ms",
        "CPU ms a request",
        "errors",
        "ours is times",
    ]
    told = f"{NUM_CONNECTIONS} connections of wrk, {seconds} s a turn, {rounds} turns, one process each: "
    return f"{told}median (range).\n\n{table(head, rows)}"


async def _rates(folder: Path, names: list[str], rounds: int, seconds: int) -> dict[str, list[Rate]]:
    async with contextlib.AsyncExitStack() as stack:
        served: dict[str, Served] = {}
        processes: dict[str, set[int]] = {}
        for name in names:
            others = set(descendants(os.getpid()))
            served[name] = await stack.enter_async_context(_SERVERS[name](folder))
            _check(served[name])
            processes[name] = set(descendants(os.getpid())) - others
        for one in served.values():
            _wrk(folder, one, 2)  # connections, caches

        def run(name: str) -> Rate:
            before = _cpu_s(processes[name])
            rate = _wrk(folder, served[name], seconds)
            used = _cpu_s(processes[name]) - before
            return replace(rate, cpu_ms=used / (rate.per_s * seconds) * 1000)

        return await asyncio.to_thread(alternate, names, run, rounds=rounds)


def _rows(rates: dict[str, list[Rate]], where: str = "") -> list[list[str]]:
    ours = rates.get("ours")
    return [
        [
            _LABELS[name] + (where if name == "ours" else ""),
            spread([one.per_s for one in found], 0),
            spread([one.p50_ms for one in found]),
            spread([one.p95_ms for one in found]),
            spread([one.cpu_ms for one in found], 2),
            str(sum(one.errors for one in found)),
            "1" if name == "ours" else spread(_times_ours(ours, found), 2) if ours else "",
        ]
        for name, found in rates.items()
    ]


def _cpu_s(pids: Iterable[int]) -> float:
    """Processor seconds that these have used: on a machine that is shared they say more than a rate."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _times_ours(ours: list[Rate], others: list[Rate]) -> list[float]:
    return round_ratios([1 / one.per_s for one in others], [1 / one.per_s for one in ours])


def _wrk(folder: Path, served: Served, seconds: int) -> Rate:
    script = folder / "post.lua"
    script.write_text(
        'wrk.method = "POST"\n'
        f"wrk.body = {json.dumps(json.dumps(CALL))}\n"
        'wrk.headers["content-type"] = "application/json"\n'
        f'wrk.headers["authorization"] = "Bearer {served.token}"\n'
        "done = function(summary, latency, requests)\n"
        "  local e = summary.errors\n"
        '  io.write(string.format("RATE %f %f %f %d\\n", summary.requests / summary.duration * 1e6,\n'
        "    latency:percentile(50) / 1e3, latency:percentile(95) / 1e3,\n"
        "    e.connect + e.read + e.write + e.status + e.timeout))\n"
        "end\n"
    )
    command = ["wrk", "-t1", f"-c{NUM_CONNECTIONS}", f"-d{seconds}s", "-s", str(script), served.url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"^RATE (\S+) (\S+) (\S+) (\d+)$", done.stdout, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"wrk said:\n{done.stdout}{done.stderr}")
    per_s, p50, p95, errors = found.groups()
    return Rate(per_s=float(per_s), p50_ms=float(p50), p95_ms=float(p95), errors=int(errors))


def _check(served: Served) -> None:
    """One call, and the right answer, before anything is measured."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {served.token}"}
    request = urllib.request.Request(served.url, json.dumps(CALL).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        told = json.loads(reply.read())
    if told["reward"]["reward_score"] != EXPECTED:
        raise RuntimeError(f"{served.url} gave {told}")


@contextlib.asynccontextmanager
async def _ours(folder: Path) -> AsyncIterator[Served]:
    spec = WorkerSpec(name="contains", classpath="rewards.py:Contains", root=folder, timeout_s=60)
    worker = WorkerProcess(spec, job_id="bench", mask=Mask(()), on_line=lambda *_: None)
    await worker.start(limit_s=60, on_stuck=lambda: None)
    try:
        yield Served(url=f"http://127.0.0.1:{worker.port}/api/v1", token=worker.token)
    finally:
        await worker.kill()


@contextlib.asynccontextmanager
async def _standard(folder: Path) -> AsyncIterator[Served]:
    if not STANDARD.is_dir():
        raise SystemExit("httptools and uvloop are not installed: bash bench/setup_functions.sh")
    async with _container(folder, beside=[STANDARD]) as served:
        yield served


@contextlib.asynccontextmanager
async def _container(folder: Path, beside: Sequence[Path] = ()) -> AsyncIterator[Served]:
    """Of the package that the tests keep in the user's cache; made by tests/fakes/dashscope_project.py."""
    sys.path.insert(0, str(ROOT / "tests"))
    from fakes.dashscope_project import environment

    port = _free_port()
    settings = {
        "FUNC_TYPE": "reward",
        "PROCESSOR_CLASS": "rewards.Contains",
        "SERVER_PORT": str(port),
        "WORKERS_COUNT": "1",
        "PYTHONPATH": os.pathsep.join(map(str, [folder, *beside])),
        "HOME": str(folder),
    }
    module = "dashscope.finetune.reinforcement.component.server.server"
    python = str(environment("2.0.2") / "python")
    if beside:  # made for another Python they would be left out without a word
        look = [python, "-c", "import httptools, uvloop"]
        await asyncio.to_thread(subprocess.run, look, env=settings, check=True)
    command = [python, "-W", "ignore", "-m", module]
    log = folder / f"container-{port}.log"
    with _process(command, settings, log) as process:
        url = f"http://127.0.0.1:{port}"
        while not _answers(f"{url}/health"):
            if process.poll() is not None:
                raise RuntimeError(log.read_text())
            await asyncio.sleep(0.1)
        yield Served(url=f"{url}/api/v1")


@contextlib.asynccontextmanager
async def _ray(folder: Path) -> AsyncIterator[Served]:
    if not RAY.is_file():
        raise SystemExit("Ray Serve is not installed: bash bench/setup_functions.sh")
    port = _free_port()
    (folder / "deployment.py").write_text(DEPLOYMENT)
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "HOME": str(folder)}
    log = folder / "ray.log"
    with _process([str(RAY), str(folder / "deployment.py"), str(port)], settings, log) as process:
        while "ready" not in log.read_text().splitlines():
            if process.poll() is not None:
                raise RuntimeError(log.read_text())
            await asyncio.sleep(0.2)
        yield Served(url=f"http://127.0.0.1:{port}/api/v1")


@contextlib.contextmanager
def _process(command: list[str], settings: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "STROP_"))}
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=log.parent,
            env={**inherited, **settings},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()  # Ray's driver ends in order then
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


_SERVERS = {"ours": _ours, "container": _container, "standard": _standard, "ray": _ray}
_LABELS = {
    "ours": "Strop's worker",
    "container": "DashScope's container (2.0.2)",
    "standard": "the same, with httptools and uvloop",
    "ray": "Ray Serve (one replica behind its proxy)",
}

SLOW = """
import asyncio

from strop import AbstractRewardProcessor, Reward, RewardOutput


class Slow(AbstractRewardProcessor):
    async def process(self, input):
        await asyncio.sleep(0.1)
        return RewardOutput(reward=Reward(reward_score=1.0))
"""


async def _scaling(folder: Path) -> str:
    """Nobody, then 32 callers for ten seconds, then nobody: what the instance does about it."""
    (folder / "slow.py").write_text(SLOW)
    spec = WorkerSpec(name="slow", classpath="slow.py:Slow", root=folder, timeout_s=60, concurrency=8)
    size = PoolSize(initial=1, smallest=0, largest=4, concurrency_threshold=1.0, idle_s=2.0)
    rows: list[list[str]] = []
    async with new_client() as client:
        instance = Instance(
            spec,
            job_id="bench",
            client=client,
            on_line=lambda *_: None,
            grace_s=2,
            start_limit_s=60,
            size=size,
        )
        try:
            await instance.start()
            while instance.reading().workers:  # the first one goes when nobody calls  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            began = time.monotonic()
            watching = asyncio.create_task(_watch(instance, began, rows))
            await asyncio.sleep(1)
            await asyncio.gather(*(_caller(instance, began + 11) for _ in range(32)))
            while instance.reading().workers:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.6)
            watching.cancel()
            reading = instance.reading()
        finally:
            await instance.close()
    head = ["seconds", "workers", "starting", "busy", "queue", "answered"]
    told = (
        "A step of load: 32 callers of a function of 100 ms from second 1 to 11; 8 calls a worker, "
        f"`min_capacity: 0`, `max_capacity: 4`, idle after 2 s. Cold starts {reading.cold_starts}, "
        f"errors {sum(reading.errors.values())}."
    )
    return f"{told}\n\n{table(head, rows)}"


async def _caller(instance: Instance, until: float) -> None:
    payload = RewardInput(agent_output=AgentOutput(messages=[]), ground_truth="x")
    while time.monotonic() < until:
        reply = await instance.call(payload)
        if not reply.ok:
            raise RuntimeError(reply.error)


async def _watch(instance: Instance, began: float, rows: list[list[str]]) -> None:
    """A row whenever something but the count of answers has changed, looked at twice a second."""
    last: list[str] = []
    while True:
        one = instance.reading()
        state = [str(one.workers), str(one.starting), str(one.busy), str(one.queue)]
        if state != last:
            rows.append([f"{time.monotonic() - began:.1f}", *state, str(one.calls)])
        last = state
        await asyncio.sleep(0.5)


def _heading() -> str:
    return f"## {datetime.date.today().isoformat()}: functions, requests a second and scaling"


def _conditions(load: float) -> str:
    facts = {**machine(), "load before": f"{load:.1f} processes"}
    return "; ".join(f"{name}: {value}" for name, value in facts.items()) + "."


if __name__ == "__main__":
    main()
