"""What a run is busy with -> a line now and then, where nothing else has been said for a while.

For outputs that are no terminal: there a run that takes its time looks hung. `cli.progress` owns one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

EVERY_S = 20.0
_LOOK_S = 1.0


class Pulse:
    """`doing` says what is being done, `rest` that nothing is, `said` that somebody said something.

    Concurrency:
        Between `start` and `stop` a thread looks every second; `say` is called there.
    """

    def __init__(self, say: Callable[[str], None], *, now: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._now = now
        self._lock = threading.Lock()  # guards what stands below
        self._doing: str | None = None
        self._far = ""
        self._since = self._last = now()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def doing(self, text: str, far: str = "") -> None:
        """`far` tells how far it is, as `12/40`; what was being done before goes on with its time."""
        with self._lock:
            if text != self._doing:
                self._doing, self._since = text, self._now()
            self._far = far

    def rest(self) -> None:
        with self._lock:
            self._doing = None

    def said(self) -> None:
        with self._lock:
            self._last = self._now()

    def beat(self) -> None:
        """Say what is being done, how far it is and for how long, if it has been silent for `EVERY_S`."""
        with self._lock:
            now = self._now()
            if self._doing is None or now - self._last < EVERY_S:
                return
            self._last = now
            minutes, seconds = divmod(round(now - self._since), 60)
            parts = [self._doing, self._far, f"{minutes}:{seconds:02d}"]
        self._say("   ".join(part for part in parts if part))

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.beat()
