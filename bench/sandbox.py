"""`python -m bench.sandbox`: Strop's sandbox and SandboxFusion side by side -> a dated entry of docs/log.md.

Both servers stand during the whole run and take turns; one client asks both in the same way. SandboxFusion is
what `setup_sandbox_fusion.sh` made: without its container and, as its local configuration has it, without
isolation. Ours is as `strop sandbox` starts it, in boxes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import io
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bench.contender import ROOT
from bench.figures import alternate, load_average, machine, spread, table, verdict
from bench.sandbox_tasks import (
    NUM_CASES,
    NUM_COMPILED_CASES,
    PATIENCE_S,
    Probe,
    Task,
    compiled_tasks,
    counting,
    probes,
    python_tasks,
)

LOG = ROOT / "docs" / "log.md"
CONCURRENCY = 32
NUM_ALONE, NUM_TOGETHER = 200, 320
COPIES = 8
"""Right programs of each problem, of Python and of C++."""
PROBE_COPIES = 8
TURN_S = 150.0
"""After that many seconds a turn asks nothing more; what was answered is what counts."""
OURS, THEIRS = "Strop", "SandboxFusion"
CACHE = Path(os.environ.get("STROP_BENCH_CACHE") or Path.home() / ".cache" / "strop-bench") / "sandbox-fusion"
TRIVIAL = {"code": "print(int(input()) * 2)", "stdin": "21", "language": "python", "run_timeout": PATIENCE_S}


@dataclass(slots=True)
class Turn:
    """One sandbox's turn: seconds in all and of each request, and what was not as it should be."""

    seconds: float
    each_s: list[float] = field(default_factory=list[float])
    wrong: list[str] = field(default_factory=list[str])

    @property
    def rate(self) -> float:
        """Right answers a second."""
        return (len(self.each_s) - len(self.wrong)) / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sandbox", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="turns of each sandbox (default 2)")
    parser.add_argument("--no-log", action="store_true", help="print the entry, but leave docs/log.md alone")
    parser.add_argument("--keep-output", type=Path, help="folder for what the servers print")
    given = parser.parse_args()
    before = load_average()
    with tempfile.TemporaryDirectory() as temporary:
        output: Path = given.keep_output or Path(temporary)
        output.mkdir(parents=True, exist_ok=True)
        with strop(output) as ours, sandbox_fusion(output) as theirs:
            sections = asyncio.run(_measure({OURS: ours, THEIRS: theirs}, given.rounds))
    entry = "\n\n".join([_heading(), _conditions(before), *sections]) + "\n"
    print("\n" + entry)
    if not given.no_log:
        with LOG.open("a") as log:
            log.write("\n" + entry)


async def _measure(urls: dict[str, str], rounds: int) -> list[str]:
    python, compiled = python_tasks(COPIES), compiled_tasks(COPIES)
    nearly = probes(_loops(0.5))
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=900)
    ) as client:
        asked = _Asked(client, urls)
        for name in urls:  # what each does once only: find its interpreter, its compiler's flags
            await asked.run(name, TRIVIAL, 4, 2)
            await asked.submit(name, compiled[:1])
        alone = await _turns(urls, rounds, lambda name: asked.run(name, TRIVIAL, NUM_ALONE, 1))
        together = await _turns(
            urls, rounds, lambda name: asked.run(name, TRIVIAL, NUM_TOGETHER, CONCURRENCY)
        )
        in_python = await _turns(urls, rounds, lambda name: asked.submit(name, python))
        in_cpp = await _turns(urls, 1, lambda name: asked.submit(name, compiled))
        flipped = await _turns(urls, 1, lambda name: asked.probe(name, nearly))
    return [
        _runs(alone, together),
        _problems(in_python, in_cpp, len(python), len(compiled)),
        _flips(flipped, len(nearly)),
        _verdicts(alone, together, in_python, in_cpp, flipped),
    ]


async def _turns(names: Iterable[str], rounds: int, work: Any) -> dict[str, list[Turn]]:
    order: list[str] = []
    alternate(list(names), order.append, rounds=rounds)
    found: dict[str, list[Turn]] = {name: [] for name in names}
    for name in order:
        found[name].append(await work(name))
        turn = found[name][-1]
        told = f"{len(turn.each_s)} answers in {turn.seconds:.1f} s, {len(turn.wrong)} wrong {turn.wrong[:1]}"
        print(f"{name}: {told}", flush=True)
    return found


class _Asked:
    """The one client of both."""

    def __init__(self, client: aiohttp.ClientSession, urls: dict[str, str]) -> None:
        self._client, self._urls = client, urls

    async def run(self, name: str, body: dict[str, Any], count: int, concurrency: int) -> Turn:
        async def one(_: int) -> str:
            reply = await self._post(name, "/run_code", body)
            said = (reply.get("run_result") or {}).get("stdout")
            return "" if said == "42\n" else str(reply)[:300]

        return await _work(range(count), one, concurrency)

    async def submit(self, name: str, tasks: Sequence[Task]) -> Turn:
        async def one(task: Task) -> str:
            reply = await self._post(name, "/submit", task.body())
            return "" if reply.get("accepted") is task.accepted else f"{task.name}: {str(reply)[:300]}"

        return await _work(tasks, one, CONCURRENCY)

    async def probe(self, name: str, nearly: Sequence[Probe]) -> Turn:
        """Each alone, which must come to what it should, then many at once."""

        async def one(probe: Probe) -> str:
            reply = await self._post(
                name, "/run_code", {"language": "python", "code": probe.code, **probe.limits}
            )
            late = (reply.get("run_result") or {}).get("status") == "TimeLimitExceeded"
            came = "TimeLimitExceeded" if late else reply.get("status")
            return "" if came == probe.expect else f"{probe.code[:20]!r} {probe.limits}: {came}"

        alone = await _work(nearly, one, 1)
        turn = await _work([probe for probe in nearly for _ in range(PROBE_COPIES)], one, CONCURRENCY)
        turn.wrong += [f"alone: {text}" for text in alone.wrong]
        return turn

    async def _post(self, name: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer; one that is none is a wrong one, and ends no measurement."""
        try:
            async with self._client.post(self._urls[name] + path, json=body) as reply:
                told = await reply.json(content_type=None)
        except (aiohttp.ClientError, ValueError, TimeoutError) as error:
            return {"status": repr(error)}
        return told if isinstance(told, dict) else {"status": str(told)}


async def _work(items: Sequence[Any], one: Any, concurrency: int) -> Turn:
    """`concurrency` callers that take the next item as soon as theirs is done."""
    turn, rest = Turn(0.0), iter(items)
    started = time.monotonic()

    async def caller() -> None:
        for item in rest:
            asked = time.monotonic()
            if asked - started > TURN_S:
                return
            wrong = await one(item)
            turn.each_s.append(time.monotonic() - asked)
            if wrong:
                turn.wrong.append(wrong)

    await asyncio.gather(*(caller() for _ in range(concurrency)))
    turn.seconds = time.monotonic() - started
    return turn


def _loops(seconds: float) -> int:
    """How often this machine counts up in that time, as the probes do: a program's names are globals."""
    count = 1_000_000
    code = compile(counting(count), "probe", "exec")
    with contextlib.redirect_stdout(io.StringIO()):
        started = time.process_time()
        exec(code, {})
        return int(count * seconds / (time.process_time() - started))


@contextmanager
def strop(output: Path, *more: str) -> Iterator[str]:
    """Ours, started with `more` options; gives its address."""
    command = [sys.executable, "-m", "strop.cli", "sandbox", "--port", "0", *more]
    env = {**os.environ, "STROP_LANG": "en"}
    with (
        (output / "strop.log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env) as process,
    ):
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split(" at ")[1].split()[0]
        finally:
            process.terminate()


@contextmanager
def sandbox_fusion(output: Path) -> Iterator[str]:
    """Raises:
    RuntimeError: it is not there, or does not come up.
    """
    python = CACHE / "envs" / "server" / "bin" / "python"
    if not python.exists():
        raise RuntimeError(f"SandboxFusion is not in {CACHE}: bash bench/setup_sandbox_fusion.sh")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(python), "-m", "uvicorn", "sandbox.server.server:app", "--port", str(port)]
    # It starts each command by bash with a socket for stdin, which then reads ~/.bashrc: no such file there.
    env = {"PATH": os.environ["PATH"], "LANG": os.environ.get("LANG", "C.UTF-8"), "HOME": str(CACHE)}
    with (
        (output / "sandbox_fusion.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, cwd=CACHE / "source", env=env) as process,
    ):
        try:
            _await(port, process, output / "sandbox_fusion.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"SandboxFusion ended: {log.read_text()[-2000:]}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return


def _runs(alone: dict[str, list[Turn]], together: dict[str, list[Turn]]) -> str:
    rows = []
    for name in (OURS, THEIRS):
        one = sorted(second for turn in alone[name] for second in turn.each_s)
        many = sorted(second for turn in together[name] for second in turn.each_s)
        rate = spread([turn.rate for turn in together[name]])
        rows.append([name, *(f"{1000 * _at(one, part):.0f}" for part in (0.5, 0.99)), rate,
                     *(f"{1000 * _at(many, part):.0f}" for part in (0.5, 0.99))])  # fmt: skip
    head = ["a trivial Python run", "alone: median ms", "p99 ms", f"{CONCURRENCY} at once: runs/s"]
    return table([*head, "median ms", "p99 ms"], rows)


def _problems(
    python: dict[str, list[Turn]], cpp: dict[str, list[Turn]], num_python: int, num_cpp: int
) -> str:
    rows = [
        [
            name,
            spread([turn.rate for turn in python[name]]),
            spread([turn.rate for turn in cpp[name]], 2),
        ]
        for name in (OURS, THEIRS)
    ]
    return table(
        [
            f"right answers to problems/s, {CONCURRENCY} clients",
            f"Python, {NUM_CASES} cases ({num_python} programs)",
            f"C++, {NUM_COMPILED_CASES} cases ({num_cpp} programs)",
        ],
        rows,
    )


def _flips(flipped: dict[str, list[Turn]], num_probes: int) -> str:
    lines = [
        f"Verdicts that load changed, of {num_probes * PROBE_COPIES} runs near their limits, {CONCURRENCY} at"
        " once:"
    ]
    for name, (turn,) in flipped.items():
        kinds = {text: turn.wrong.count(text) for text in turn.wrong}
        told = "; ".join(f"{count}x {text}" for text, count in kinds.items())
        lines.append(f"* {name}: {len(turn.wrong)}" + (f" ({told})" if told else ""))
    return "\n".join(lines)


def _verdicts(
    alone: dict[str, list[Turn]],
    together: dict[str, list[Turn]],
    python: dict[str, list[Turn]],
    cpp: dict[str, list[Turn]],
    flipped: dict[str, list[Turn]],
) -> str:
    def rate(turns: dict[str, list[Turn]]) -> float:
        ours, theirs = (sum(one.rate for one in turns[name]) for name in (OURS, THEIRS))
        return ours / theirs if theirs else float("inf")

    def p99(turns: dict[str, list[Turn]]) -> float:
        ours, theirs = (sorted(s for one in turns[n] for s in one.each_s) for n in (OURS, THEIRS))
        return _at(ours, 0.99) / _at(theirs, 0.99)

    wrong = {
        name: sum(len(turn.wrong) for kind in (alone, together, python, cpp) for turn in kind[name])
        for name in (OURS, THEIRS)
    }
    return "\n".join(
        [
            verdict("Python problems/s against SandboxFusion", rate(python), 3.0, unit="x"),
            verdict("C++ problems/s against SandboxFusion", rate(cpp), 3.0, unit="x"),
            verdict("p99 of a trivial run alone, ours of theirs", p99(alone), 1.0, unit="x", at_least=False),
            verdict(f"the same, {CONCURRENCY} at once", p99(together), 1.0, unit="x", at_least=False),
            f"* verdicts of ours that load changed: {len(flipped[OURS][0].wrong)}, target 0",
            f"* answers that were not right otherwise: {wrong[OURS]} of ours, {wrong[THEIRS]} of theirs",
        ]
    )  # fmt: skip


def _at(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def _heading() -> str:
    return f"## {datetime.date.today().isoformat()}: the sandbox beside SandboxFusion"


def _conditions(load: float) -> str:
    facts = {**machine(), "load before": f"{load:.1f} processes"}
    told = "; ".join(f"{name}: {value}" for name, value in facts.items())
    return (
        f"{told}. SandboxFusion 469de08 by uvicorn with its local configuration: no container, no isolation,"
        " its conda environment replaced by a bare venv (which starts faster). Strop's in boxes, by default."
        " Both on this machine with the client, in turns."
    )


if __name__ == "__main__":
    main()
