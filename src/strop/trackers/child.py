"""`python -m strop.trackers.child`: lines of JSON on stdin -> one tracker; its reports, on stdout.

The first line is a `Start`, each further one a step's values or the run's last status. The end of stdin is
the end of the run, however it came, and of this process soon after.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable
from typing import TextIO

from pydantic import BaseModel

from strop.schema.job import JobStatus
from strop.schema.watching import TrackerConfig
from strop.trackers.sink import Sink, TrackedRun, open_sink

LAST_WORDS_S = 30.0
"""Seconds for closing: a tracker that cannot be reached would try for ever, and nothing else would end it."""

_LONGEST = 500
"""Characters of a message."""
_USER = re.compile(r"(?<=://)[^/\s]*@")


class Start(BaseModel):
    tracker: TrackerConfig
    run: TrackedRun


def feed(lines: Iterable[str], told: TextIO) -> None:
    """Read to the end. A value that the tracker refuses is lost; the first loss in a row is reported."""
    reading = iter(lines)
    start = Start.model_validate_json(next(reading))
    try:
        sink = open_sink(start.tracker, start.run)
    except Exception as error:  # noqa: BLE001  a library's edge: whatever it raises, the run goes on without it
        _tell(told, failed=_text(error))
        return
    _tell(told, where=sink.where)
    status, failing = None, False
    for line in reading:
        said = json.loads(line)
        if "status" in said:
            status = JobStatus(said["status"])
            continue
        failing = _log(sink, said["step"], said["values"], told, failing=failing)
    threading.Timer(LAST_WORDS_S, os._exit, (1,)).start()
    try:
        sink.close(status)
    except Exception as error:  # noqa: BLE001  as above
        _tell(told, failed=_text(error))


def _log(sink: Sink, step: int, values: dict[str, float], told: TextIO, *, failing: bool) -> bool:
    try:
        sink.log(step, values)
    except Exception as error:  # noqa: BLE001  as above
        if not failing:
            _tell(told, lost=f"step {step}: {_text(error)}")
        return True
    return False


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _tell(told: TextIO, **said: str) -> None:
    """Without the name and password of addresses, as in `MLFLOW_TRACKING_URI`: events are not secret."""
    shown = {key: _USER.sub("", text)[:_LONGEST] for key, text in said.items()}
    told.write(json.dumps(shown) + "\n")
    told.flush()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which closes stdin in its time
    lines, told = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)  # what they start may outlive this process, and would hold the pipe
    feed(lines, told)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # libraries leave threads that wait for what will not come


if __name__ == "__main__":
    main()
