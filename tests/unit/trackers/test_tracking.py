"""The processes of trackers: fed in order, never waited for, gone at the end."""

from __future__ import annotations

import io
import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path

import httpx
import pytest

from fakes.server import eventually
from strop.schema.job import JobStatus
from strop.schema.watching import TrackerConfig
from strop.trackers import child, tracking
from strop.trackers.sink import TrackedRun

DEAF = (sys.executable, "-c", "import signal; signal.pause()")
"""Never reads, never ends by itself."""
BROKEN = (sys.executable, "-c", "raise SystemExit(3)")


class Told:
    """Events, in order; a test waits for one."""

    def __init__(self) -> None:
        self.queue: queue.Queue[tuple[str, str]] = queue.Queue()

    def __call__(self, kind: str, text: str) -> None:
        self.queue.put((kind, text))

    def next(self) -> tuple[str, str]:
        return self.queue.get(timeout=60)

    @property
    def rest(self) -> list[tuple[str, str]]:
        return [self.queue.get_nowait() for _ in range(self.queue.qsize())]


def tracked(tmp_path: Path, told: Told, command=tracking.COMMAND, **settings) -> tracking.Tracking:
    run = TrackedRun(job_id="ft-1", name="n", folder=tmp_path, config={})
    return tracking.Tracking([TrackerConfig.model_validate(settings)], run, told, command=command)


def test_values_reach_a_tracker_in_a_process_of_its_own_and_it_ends_with_the_run(tmp_path: Path):
    told = Told()
    made = tracked(tmp_path, told, type="prometheus", port=0)
    kind, text = told.next()
    url = text.removeprefix("prometheus: ")
    assert kind == "tracker"
    made.metrics(1, {"actor/loss": 0.5, "actor/entropy": float("nan")})
    made.metrics(2, {"actor/loss": 0.25})
    line = 'strop_job_metric{job_id="ft-1",metric="actor/loss"} 0.25'
    while line not in (page := httpx.get(url).text):
        pass
    assert "actor/entropy" not in page
    made.status(JobStatus.SUCCEEDED)
    made.close(60)
    assert told.rest == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_a_tracker_that_reads_nothing_is_not_waited_for_and_ended(tmp_path: Path):
    told = Told()
    made = tracked(tmp_path, told, DEAF, type="mlflow")
    for step in range(2 * tracking.QUEUE_LIMIT):  # more than its queue and the pipe hold
        made.metrics(step, {"actor/loss": 0.5, "trace/reward/" + 200 * "x" + "/avg": 1.0})
    made.close(0.0)
    [(slow, text), (failed, last)] = told.rest
    assert (slow, failed) == ("tracker_slow", "tracker_failed")
    assert "mlflow is too slow" in text
    assert "was ended" in last


def test_a_tracker_that_dies_costs_its_own_curves(tmp_path: Path):
    told = Told()
    made = tracked(tmp_path, told, BROKEN, type="wandb")
    assert told.next() == ("tracker_failed", "tracker wandb exited with status 3; the run goes on without it")
    for step in range(2 * tracking.QUEUE_LIMIT):
        made.metrics(step, {"actor/loss": 0.5})
    made.close(60)
    assert told.rest == []


def test_a_program_that_is_not_there_is_told_of(tmp_path: Path):
    told = Told()
    made = tracked(tmp_path, told, (str(tmp_path / "gone"),), type="wandb")
    made.metrics(1, {"actor/loss": 0.5})
    made.close()
    [(kind, text)] = told.rest
    assert kind == "tracker_failed"
    assert "wandb cannot be started" in text


def start(tmp_path: Path, **settings) -> str:
    run = TrackedRun(job_id="ft-1", name="n", folder=tmp_path, config={})
    return child.Start(tracker=TrackerConfig.model_validate(settings), run=run).model_dump_json()


def test_a_tracker_that_cannot_be_opened_says_why(tmp_path: Path):
    told = io.StringIO()
    child.feed(iter([start(tmp_path, type="mlflow", tracking_uri="gopher://x")]), told)
    assert "gopher" in json.loads(told.getvalue())["failed"]


def test_what_a_tracker_does_not_take_is_told_once_until_something_gets_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    taken = []

    class Moody:
        where = "here"

        def log(self, step, values):
            if step in (2, 3, 5):
                raise ConnectionError("no route")
            taken.append((step, values))

        def close(self, status):
            taken.append(status)

    monkeypatch.setattr(child, "open_sink", lambda tracker, run: Moody())
    monkeypatch.setattr(
        child.threading, "Timer", lambda *_: type("Timer", (), {"start": lambda self: None})()
    )
    told = io.StringIO()
    steps = [json.dumps({"step": step, "values": {"actor/loss": 1.0}}) for step in range(1, 6)]
    child.feed(iter([start(tmp_path, type="wandb"), *steps, json.dumps({"status": "FAILED"})]), told)
    assert [json.loads(line) for line in told.getvalue().splitlines()] == [
        {"where": "here"},
        {"lost": "step 2: ConnectionError: no route"},
        {"lost": "step 5: ConnectionError: no route"},
    ]
    assert taken == [(1, {"actor/loss": 1.0}), (4, {"actor/loss": 1.0}), JobStatus.FAILED]


WITH_A_COMPANION = """
import signal, subprocess, sys
from strop.trackers import child
def open_sink(tracker, run):
    companion = subprocess.Popen(["sleep", "600"], start_new_session=True)
    (run.folder / "companion.part").write_text(str(companion.pid))
    (run.folder / "companion.part").rename(run.folder / "companion")
    signal.pause()
child.open_sink = open_sink
child.main()
"""
"""As the client of Weights & Biases: a process of its own beside it, which outlives it."""


def test_what_a_tracker_started_cannot_hold_up_the_runs_end(tmp_path: Path):
    told = Told()
    made = tracked(tmp_path, told, (sys.executable, "-c", WITH_A_COMPANION), type="wandb")
    companion = int(eventually(lambda: read_if_there(tmp_path / "companion"), within_s=60))
    try:
        for step in range(2 * tracking.QUEUE_LIMIT):  # more than the pipe holds
            made.metrics(step, {"trace/reward/" + 200 * "x" + "/avg": 1.0})
        closing = threading.Thread(target=made.close, args=(0.0,), daemon=True)
        closing.start()
        closing.join(60)
        assert not closing.is_alive()
    finally:
        os.kill(companion, signal.SIGKILL)


def read_if_there(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


@pytest.mark.parametrize("given", ["where", "failure"])
def test_no_event_holds_the_password_of_an_address(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    secret = "https://user:pa%3Ass" + 600 * "x" + "@tracking.example:5000/api"

    class Named:
        where = f"{secret} strop/run"

        def close(self, status):
            """Nothing to write."""

    def open_sink(tracker, run):
        if given == "failure":
            raise ConnectionError(f"API request to {secret} failed")
        return Named()

    monkeypatch.setattr(child, "open_sink", open_sink)
    monkeypatch.setattr(
        child.threading, "Timer", lambda *_: type("Timer", (), {"start": lambda self: None})()
    )
    told = io.StringIO()
    child.feed(iter([start(tmp_path, type="mlflow")]), told)
    assert "https://tracking.example:5000/api" in told.getvalue()
    assert "user" not in told.getvalue()
