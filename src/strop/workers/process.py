"""Spec -> a running worker process, as the pool's side sees it: its address, its output, its end."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from strop.errors import FunctionError
from strop.locales import msg
from strop.processes.cgroups import Cgroup
from strop.processes.child import Child, NotStarted
from strop.schema.function import FunctionType
from strop.workers.masking import Mask
from strop.workers.spec import WorkerSpec, worker_environment

OnLine = Callable[[str, str, str], None]
"""(component, stream, text); called on the event loop's thread, a line at a time, and must return quickly."""

_YOUNG_S = 10.0


class WorkerProcess:
    """One worker. `num_in_flight` and `draining` are its instance's book-keeping."""

    def __init__(self, spec: WorkerSpec, *, job_id: str, mask: Mask, on_line: OnLine) -> None:
        self._spec = spec
        self._job_id = job_id
        self._mask = mask
        self._on_line = on_line
        self._on_stuck: Callable[[], None] = lambda: None
        self._over = ""
        self._began: float | None = None
        self._child = Child(
            mask=mask,
            on_line=lambda stream, text: self._on_line(f"function:{spec.name}", stream, text),
            on_ready=self._take_ready,
            on_event=self._take_event,
            on_lost=self._clear_group,
        )
        self.token = secrets.token_urlsafe(32)
        self.exited = self._child.exited
        self.idle = asyncio.Event()
        self.idle.set()
        self.num_in_flight = 0
        self.draining = False
        self.memory_bytes = 0
        self.port = 0
        self.func_type = FunctionType.ROLLOUT
        self.sub_weights: dict[str, float] = {}
        self.class_name = ""
        self.untraced = False

    async def start(self, *, limit_s: float, on_stuck: Callable[[], None]) -> None:
        """Start the process and wait until it listens. `on_stuck` is called when it should get no more calls.

        Raises:
            FunctionError: the class could not be loaded or set up, the process died, or `limit_s` has passed.
            No process is left then, nor when this is cancelled.
        """
        self._on_stuck = on_stuck
        scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="strop-function-"))
        self._spec = replace(self._spec, scratch=scratch)
        try:
            await self._child.start(
                self._command,
                worker_environment(self._spec, self._job_id),
                self._spec.to_json(self.token),
                limit_s=limit_s,
            )
        except BaseException as error:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
            if isinstance(error, NotStarted):
                raise self._not_started(error) from None
            raise
        self._began = asyncio.get_running_loop().time()

    def _command(self, descriptor: int) -> list[str]:
        # -P: the root comes into sys.path in the worker, after the libraries that Strop needs.
        python = str(self._spec.python or sys.executable)
        return [python, "-P", "-m", "strop.workers.worker", str(descriptor)]

    def _not_started(self, error: NotStarted) -> FunctionError:
        match error.how:
            case "refused":
                return FunctionError(str(error))
            case "late":
                fix = "look at its import and its setup()"
                return FunctionError(
                    msg("function {name!r} {error}", name=self._spec.name, error=error), fix=fix
                )
            case "ended":
                return FunctionError(self.exit_text())

    async def kill(self) -> None:
        """End the worker with all its descendants; returns when they are gone and their output was read."""
        await self._child.kill()
        # The reaper has done it, unless it was killed.
        if self._spec.scratch is not None:
            await asyncio.to_thread(shutil.rmtree, self._spec.scratch, ignore_errors=True)

    def take(self) -> None:
        """Count a call that is being sent."""
        self.num_in_flight += 1
        self.idle.clear()

    def release(self) -> None:
        """Count it off."""
        self.num_in_flight -= 1
        if self.num_in_flight == 0:
            self.idle.set()

    def exit_text(self) -> str:
        """How the process ended, and what it last wrote to stderr."""
        child = self._child
        how = f"was ended: {self._over}" if self._over else child.ending()
        return f"the worker process of function {self._spec.name!r} {how}{child.last_words()}"

    def _is_grown(self) -> bool:
        """Whether it may be replaced: one that is full soon after its start would be followed by another."""
        now = asyncio.get_running_loop().time()
        return self._began is not None and now - self._began > _YOUNG_S

    def _clear_group(self) -> None:
        scratch = self._spec.scratch
        if scratch is not None and (group := Cgroup.of_name(scratch.name)) is not None:
            group.kill()
            group.remove()

    def _take_ready(self, event: dict[str, Any]) -> None:
        self.port = int(event["port"])
        self.func_type = FunctionType(event["func_type"])
        self.sub_weights = dict(event["sub_weights"])
        self.class_name = str(event["class_name"])
        self.untraced = bool(event["untraced"])

    def _take_event(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "stuck" or (kind == "full" and self._is_grown()):
            self._on_stuck()
        elif kind == "over":
            self._over = str(event["text"])
        elif kind == "memory":
            self.memory_bytes = int(event["bytes"])
