"""A run with agents, watched from elsewhere: curves in a tracker, findings at a webhook, and its end."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fakes.jobs import write_job
from strop.cli.training_here import train_here
from strop.config.loading import load_job
from strop.diagnosis.doctor import ALL_RULES
from strop.diagnosis.record import Record
from strop.diagnosis.rules import Seen
from strop.errors import StoppedByDiagnosis
from strop.schema.finding import Text
from strop.schema.job import JobStatus
from strop.store.checkpoints import list_checkpoints
from strop.store.database import open_database
from strop.store.events import list_events
from strop.store.jobs import get_job, list_jobs


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append(json.loads(body)["type"])  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def test_a_finding_that_the_job_names_ends_the_run_with_its_steps_saved_tracked_and_posted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def from_the_second_step(record: Record) -> Seen | None:
        return Seen(summary=Text(en="as planned", zh="如期")) if record.step >= 2 else None

    monkeypatch.setitem(ALL_RULES, "P4", from_the_second_step)
    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        server.got = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            changes = {
                "trackers": ["tensorboard"],
                "diagnosis.stop_on": ["P4"],
                "diagnosis.webhook.url": f"http://127.0.0.1:{server.server_port}/hook",
                "eval_steps": 99,
            }
            config = load_job(write_job(tmp_path, rows=8, save_steps=99), changes)
            with pytest.raises(StoppedByDiagnosis, match=r"step 2: .* P4 .*as planned"):
                train_here(config, Console(quiet=True))
            got = list(server.got)  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            thread.join()
    # What a random model writes is found to be garbled, too.
    assert got[0] == "finding.began"
    assert got[-1] == "finding.stopped"
    database = open_database()
    try:
        with database.read() as session:
            [job] = list_jobs(session).items
            [checkpoint] = list_checkpoints(session, job.job_id)
            kinds = [event.kind for event in list_events(session, job.job_id).items]
            job = get_job(session, job.job_id)
    finally:
        database.close()
    assert (job.status, checkpoint.step, checkpoint.published) == (JobStatus.FAILED, 2, False)
    assert "diagnosis.stop_on" in (job.error or "")
    assert "tracker" in kinds
    board = EventAccumulator(str(checkpoint.folder.parents[1] / "tensorboard")).Reload()
    assert [one.step for one in board.Scalars("critic/rewards/mean")] == [1, 2]
