"""A run's events -> a process for each of its job's trackers; the run never waits for one.

Each tracker has a queue of its own; what comes while it is full is lost there, and an event says so. At the
end all of them together get a few seconds, then they are killed.
"""

from __future__ import annotations

import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from strop.locales import Message, msg
from strop.processes.ending import end_tree, exit_text
from strop.schema.job import JobStatus
from strop.schema.run_event import RunEvent, StatusChanged, StepMeasured
from strop.schema.watching import TrackerConfig
from strop.trackers.child import Start
from strop.trackers.sink import TrackedRun

QUEUE_LIMIT = 1000
"""Lines that may wait; a step writes two or three."""

GRACE_S = 10.0
"""Seconds that all trackers have to take what waits, once the run has ended."""

COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "strop.trackers.child")
"""`-P`: a file `wandb.py` in the working directory must not be imported."""

Tell = Callable[[str, str], None]
"""Kind and text of an event."""


class Tracking:
    """Subscribes to a run, and hands finite values and the last status on."""

    def __init__(
        self,
        trackers: Sequence[TrackerConfig],
        run: TrackedRun,
        tell: Tell,
        *,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._fed = [_Fed(tracker, run, tell, command) for tracker in trackers]

    def receive(self, event: RunEvent) -> None:
        match event:
            case StepMeasured(step=step, values=values):
                self.metrics(step, values)
            case StatusChanged(status=status):
                self.status(status)
            case _:
                pass

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        if finite:
            self._say({"step": step, "values": finite})

    def status(self, status: JobStatus) -> None:
        if status.final:
            self._say({"status": status.value})

    def close(self, grace_s: float = GRACE_S) -> None:
        """Let every tracker finish, but not for longer than the grace; whatever is left then is killed."""
        for fed in self._fed:
            fed.end()
        deadline = time.monotonic() + grace_s
        for fed in self._fed:
            fed.join(max(0.0, deadline - time.monotonic()))

    def _say(self, said: Mapping[str, Any]) -> None:
        if self._fed:
            line = json.dumps(said).encode() + b"\n"
            for fed in self._fed:
                fed.put(line)


@contextmanager
def tracking(trackers: Sequence[TrackerConfig], run: TrackedRun, tell: Tell) -> Generator[Tracking]:
    """The job's trackers, until the block ends."""
    made = Tracking(trackers, run, tell)
    try:
        yield made
    finally:
        made.close()


class _Fed:
    """One tracker's process, with a thread that writes to it and one that reads from it."""

    def __init__(self, tracker: TrackerConfig, run: TrackedRun, tell: Tell, command: Sequence[str]) -> None:
        self._name = tracker.type.value
        self._tell = tell
        self._waiting: queue.Queue[bytes | None] = queue.Queue(QUEUE_LIMIT)
        self._told_loss = False
        self._ending, self._gone = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        except OSError as error:
            self._child = None
            tell("tracker_failed", self._said(msg("cannot be started: {error}", error=error)))
            return
        self.put(Start(tracker=tracker, run=run).model_dump_json().encode() + b"\n")
        for work in (self._write, self._hear):
            thread = threading.Thread(target=work, name=f"tracker {self._name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _said(self, what: Message) -> Message:
        return msg("tracker {name} {what}", name=self._name, what=what)

    def put(self, line: bytes) -> None:
        if self._child is None or self._ending.is_set() or self._gone.is_set():
            return
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            if not self._told_loss:
                self._told_loss = True
                text = self._said(msg("is too slow: it misses steps; the run's own record has them"))
                self._tell("tracker_slow", text)

    def end(self) -> None:
        """Nothing more will be put."""
        if self._child is not None and not self._ending.is_set():
            self._ending.set()
            with suppress(queue.Full):
                self._waiting.put_nowait(None)

    def join(self, grace_s: float) -> None:
        child = self._child
        if child is None:
            return
        if not end_tree(child, grace_s=grace_s):
            text = self._said(msg("did not finish in time and was ended: its last steps may be missing"))
            self._tell("tracker_failed", text)
        for thread in self._threads:  # the process is gone, so both pipes are at their end
            thread.join()

    def _write(self) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        with suppress(OSError):  # it has ended; `_hear` tells
            with self._child.stdin as pipe:
                while (line := self._next()) is not None:
                    pipe.write(line)
                    pipe.flush()

    def _next(self) -> bytes | None:
        """The next line; None once all is written that came before the end, or the process is gone."""
        while True:
            try:
                return self._waiting.get(timeout=0.5)
            except queue.Empty:
                if self._ending.is_set() or self._gone.is_set():
                    return None

    def _hear(self) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        with self._child.stdout as pipe:
            for line in pipe:
                self._heard(line)
        self._gone.set()
        code = self._child.wait()
        if not self._ending.is_set() and code != 0:
            self._tell(
                "tracker_failed",
                self._said(msg("{exit_text}; the run goes on without it", exit_text=exit_text(code))),
            )

    def _heard(self, line: bytes) -> None:
        try:
            said: dict[str, str] = json.loads(line)
        except ValueError:  # a library wrote past us
            return
        if "where" in said:
            self._tell("tracker", f"{self._name}: {said['where']}")
        elif "lost" in said:
            self._tell("tracker_failed", self._said(msg("did not take {said}", said=said["lost"])))
        elif "failed" in said:
            self._tell(
                "tracker_failed",
                self._said(msg("failed, the run goes on without it: {said}", said=said["failed"])),
            )
