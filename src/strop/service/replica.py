"""One replica of a deployment: a `strop serve` child, from its start to its end.

It ends with the server that started it (see `processes.child`), so nothing is left behind, whoever is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import sys
from dataclasses import dataclass
from typing import Any

from strop.errors import EngineError
from strop.processes.child import Child, NotStarted

logger = logging.getLogger(__name__)

_OWN_SETTINGS_PASSED_ON = frozenset(
    {
        "STROP_HOME",
        "STROP_LANG",
        "STROP_SERVE_KV_MEMORY",
        "STROP_SERVE_MAX_LENGTH",
        "STROP_SERVE_MAX_SEQUENCES",
        "STROP_SERVE_MAX_WAITING",
    }
)
"""Of ours; the rest, keys among them, is none of a replica's business."""

STOP_S = 35.0
"""Seconds a replica has to finish its answers: a little more than it gives itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """What to serve and under which name. `shared`: `source` is the folder of a base that takes adapters.

    Units:
        num_threads: processor threads that one replica computes with; its fleet chooses them at its start.
    """

    deployed_model: str
    source: str
    num_threads: int = 1
    shared: bool = False


class Replica:
    """`num_in_flight` counts the calls that the proxy has sent and not ended; the proxy keeps it."""

    def __init__(self, spec: ReplicaSpec) -> None:
        self.spec = spec
        self.key = secrets.token_urlsafe(32)
        self.num_in_flight = 0
        self.port = 0
        self.pid = 0
        self._child = Child(
            mask=str,
            on_line=lambda stream, text: logger.info("%s: %s", spec.deployed_model, text),
            on_ready=self._take_ready,
        )
        self.exited = self._child.exited

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self, *, limit_s: float) -> None:
        """Start the process and wait until it answers.

        Raises:
            EngineError: it could not load the model, died, or was not ready after `limit_s`. No process is
            left then, nor when this is cancelled.
        """
        handed = {"api_key": self.key} | ({"base": self.spec.source} if self.spec.shared else {})
        try:
            await self._child.start(
                self._command, environment_of(self.spec), json.dumps(handed), limit_s=limit_s
            )
        except NotStarted as error:
            raise EngineError(str(error)) from None

    async def stop(self) -> None:
        """Let it finish its answers, then end it; returns when it is gone."""
        if self.pid and not self.exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.exited.wait(), STOP_S)
        await self.kill()

    async def kill(self) -> None:
        await self._child.kill()

    def exit_text(self) -> str:
        """How it ended, as the end of a sentence, and what it last said."""
        return f"{self._child.ending()}{self._child.last_words()}"

    def _command(self, descriptor: int) -> list[str]:
        spec = self.spec
        own = ["--name", spec.deployed_model, "--port", "0", "--channel", str(descriptor)]
        return [sys.executable, "-m", "strop.cli", "serve", spec.source, *own]

    def _take_ready(self, event: dict[str, Any]) -> None:
        self.port, self.pid = int(event["port"]), int(event["pid"])


def threads_for(num_replicas: int) -> int:
    """Of the processor, for each of so many replicas."""
    return max(1, (os.cpu_count() or 1) // max(1, num_replicas))


def environment_of(spec: ReplicaSpec) -> dict[str, str]:
    """The server's environment without its own settings."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("STROP_", "DASHSCOPE_")) or name in _OWN_SETTINGS_PASSED_ON
    }
    return {"OMP_NUM_THREADS": str(spec.num_threads), "PYTHONUNBUFFERED": "1", **inherited}
