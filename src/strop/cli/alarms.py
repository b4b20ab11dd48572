"""What a trainer notes while its database refuses -> the command that keeps it, by a pipe.

A full disk takes the database along with the checkpoints, and who could free it must hear of it. What the
database takes comes to the command by the job's stream; the pipe carries the rest, each note as a line of JSON.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from strop.cli.broadcast import Broadcast
from strop.store.recorder import StoreRecorder

Alarm = Callable[[str], None]


def alarm_to(descriptor: int) -> Alarm:
    """What writes to the pipe of `--alarms`; children do not inherit it."""
    os.set_inheritable(descriptor, False)

    def alarm(message: str) -> None:
        with suppress(OSError):  # nobody listens any more
            os.write(descriptor, json.dumps(message).encode() + b"\n")

    return alarm


class AlarmingRecorder(Broadcast):
    """Hands everything on to `recorder`; an event that its database refuses is an `alarm`, too.

    Side effects:
        A thread an event, until the database has said yes or no.
    """

    def __init__(self, recorder: StoreRecorder, alarm: Alarm | None) -> None:
        super().__init__([recorder])
        self._store = recorder
        self._alarm = alarm

    def event(
        self, kind: str, message: str, *, step: int | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        super().event(kind, message, step=step, data=data)
        if self._alarm is not None:
            threading.Thread(target=self._tell, args=(message,), name="alarm", daemon=True).start()

    def _tell(self, message: str) -> None:
        if self._alarm is not None and not self._store.taken():
            self._alarm(message)
