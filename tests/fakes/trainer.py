"""A trainer that trains nothing: the job's name says what it does. The server under test runs it."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from strop.processes.mark import this_process
from strop.schema.job import Checkpoint, JobStatus
from strop.schema.submission import Wanted
from strop.store.checkpoints import checkpoint_id, list_checkpoints, record_checkpoint
from strop.store.database import open_database
from strop.store.jobs import claim_job, get_job, move_job
from strop.store.metrics import record_metrics
from strop.store.submissions import wanted_of

LIFE_S = 180
"""No test lasts as long; a trainer outlives its server, and must not outlive a test that was killed."""


def main(job_id: str) -> None:
    database = open_database()
    give_up, pause_s = time.monotonic() + LIFE_S, 0.02

    def move(status: JobStatus, error: str | None = None) -> None:
        with database.write() as session:
            move_job(session, job_id, status, error=error)

    def save(step: int) -> None:
        with database.write() as session:
            made = Checkpoint(
                checkpoint_id=checkpoint_id(job_id, step), job_id=job_id, step=step, folder=Path("nowhere"),
                policy_version=step, validation=0.1 * step, created_at=datetime.now(UTC),
            )  # fmt: skip
            record_checkpoint(session, made)
            record_metrics(session, job_id, step, {"critic/rewards/mean": 0.5, "actor/entropy": float("nan")})

    def wanted() -> Wanted:
        with database.read() as session:
            return wanted_of(session, job_id)

    with database.write() as session:
        claim_job(session, job_id, this_process())
        name = get_job(session, job_id).name
    with database.read() as session:
        steps = [one.step for one in list_checkpoints(session, job_id)]
    print("working on", name, flush=True)
    match name.partition("-")[0] if name.startswith("tiny") else name:
        case "quick":
            save(1)
            move(JobStatus.SUCCEEDED)
        case "fails":
            move(JobStatus.FAILED, "the numbers went wrong")
        case "waits" | "tiny":
            while (asked := wanted()) is Wanted.RUN:
                assert time.monotonic() < give_up, "nobody wants anything: the test was killed"
                time.sleep(pause_s)
                pause_s = min(pause_s * 1.05, 0.2)  # some wait as long as a file of tests runs
            save(max(steps, default=0) + 1)
            move(JobStatus.SUSPENDED if asked is Wanted.PAUSE else JobStatus.CANCELED)
        case "hangs":
            time.sleep(LIFE_S)
        case "dies":
            print("about to die", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        case "dies-and-gets-on":
            if len(steps) == 3:
                move(JobStatus.SUCCEEDED)
            else:
                save(len(steps) + 1)
                os.kill(os.getpid(), signal.SIGKILL)
        case _:
            raise SystemExit(f"unknown work {name!r}")


if __name__ == "__main__":
    main(sys.argv[1])
