"""A client that follows a job while its server ends and another one takes its place."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

from fakes.server import Server, eventually, serving
from strop import Client
from strop.schema.job import Event, JobStatus
from strop.schema.responses import EventInfo, JobInfo, StreamItem
from strop.store.events import record_event
from strop.store.jobs import move_job


def note(server: Server, job_id: str, message: str) -> None:
    event = Event(job_id=job_id, kind="note", message=message, created_at=datetime.now(UTC))
    with server.database.write() as session:
        record_event(session, event)


def move(server: Server, job_id: str, status: JobStatus) -> None:
    with server.database.write() as session:
        move_job(session, job_id, status)


def test_a_jobs_stream_goes_on_with_the_next_server_and_tells_nothing_twice(tmp_path: Path) -> None:
    told: list[StreamItem] = []

    def notes() -> list[str]:
        return [item.message for item in told if isinstance(item, EventInfo) and item.kind == "note"]

    with serving(tmp_path / "home", supervise=False) as first:
        job_id = first.submit()
        move(first, job_id, JobStatus.RUNNING)
        note(first, job_id, "before")
        port = int(first.url.rpartition(":")[2])
        client = Client(first.url, first.key)

        def watch() -> None:
            for item in client.jobs.stream(job_id):
                told.append(item)

        watching = threading.Thread(target=watch)
        watching.start()
        eventually(lambda: notes() == ["before"])
    with serving(tmp_path / "home", port=port, supervise=False) as second:
        note(second, job_id, "after")
        eventually(lambda: notes() == ["before", "after"])
        move(second, job_id, JobStatus.SUCCEEDED)
        watching.join(60)
        assert not watching.is_alive()
    client.close()
    assert [item.status for item in told if isinstance(item, JobInfo)][-1] is JobStatus.SUCCEEDED
    assert notes() == ["before", "after"]
