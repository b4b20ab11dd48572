"""What a trainer notes while its database refuses -> the command that keeps it, by a pipe.

A full disk takes the database along with the checkpoints, and who could free it must hear of it. What the
database takes comes to the command by the job's stream; the pipe carries the rest, each note as a line of JSON:
its words in English and Chinese, and the second at which it was noted. The stream tells the same ones later, so
that the command knows which of them it has heard, also of a trainer that was started again.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from strop.cli.broadcast import Broadcast
from strop.schema.job import Event
from strop.store.recorder import StoreRecorder

Alarm = Callable[[str, str, int], None]
"""Takes a note's words in English and in Chinese, and the second since 1970 at which it was noted."""


def alarm_to(descriptor: int) -> Alarm:
    """What writes to the pipe of `--alarms`, from any thread; children do not inherit it."""
    os.set_inheritable(descriptor, False)
    one_at_a_time = threading.Lock()  # a long line is not written in one piece

    def alarm(en: str, zh: str, at: int) -> None:
        with one_at_a_time, suppress(OSError):  # nobody listens any more
            os.write(descriptor, json.dumps([en, zh, at]).encode() + b"\n")

    return alarm


class AlarmingRecorder(Broadcast):
    """Hands everything on to `recorder`; an event that its database refuses is an `alarm`, too.

    Side effects:
        A thread an event, until the database has said yes or no; `wait` waits for all of them.
    """

    def __init__(self, recorder: StoreRecorder, alarm: Alarm | None) -> None:
        super().__init__([recorder])
        self._store = recorder
        self._alarm = alarm
        self._lock = threading.Lock()  # guards what is below
        self._asking: list[threading.Thread] = []

    def event(
        self, kind: str, message: str, *, step: int | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        noted = self._store.note(kind, message, step=step, data=data)
        if self._alarm is None:
            return
        with self._lock:
            arguments = (self._alarm, noted)
            asking = threading.Thread(target=self._tell, args=arguments, name="alarm", daemon=True)
            self._asking = [one for one in self._asking if one.is_alive()]
            self._asking.append(asking)
            asking.start()

    def wait(self) -> None:
        """Until every event so far is in the database or has been an alarm."""
        with self._lock:
            asking = self._asking
        for one in asking:
            one.join()

    def _tell(self, alarm: Alarm, noted: Event) -> None:
        if not self._store.taken():
            alarm(noted.message, noted.message_in("zh"), int(noted.created_at.timestamp()))
