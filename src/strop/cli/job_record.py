"""A checked job -> its row in the store and the recorder that writes to it; jobs that were lost are told of.

Used by both kinds of session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from strop.cli.job_log import logging_to
from strop.cli.resume import Resumed
from strop.cli.run_folder import Earlier, claimed
from strop.cli.text import t
from strop.pipeline.ports import Recorder
from strop.policy import models
from strop.schema.job import Job, JobStatus
from strop.store.database import Database, open_database
from strop.store.home import home
from strop.store.jobs import claim_job, create_job, fail_lost_jobs, live_jobs
from strop.store.processes import this_process
from strop.store.published import INPUTS_EVENT
from strop.store.recorder import StoreRecorder


def claim_folder(
    stack: ExitStack,
    job_id: str,
    *,
    out: Path | None,
    resumed: Resumed | None,
    anew: bool,
    submitted: bool = False,
) -> Path:
    """The job's folder, this process's alone until `stack` closes: `out`, else that of the run `resumed`, else
    one below `STROP_HOME/jobs`. With `anew` checkpoints that lie there are removed. A `submitted` job's folder
    is its own, and its checkpoints stay.

    Raises:
        ConfigError: it cannot be written, or is another run's.
    """
    own = resumed.folder if resumed is not None else None
    folder = (out or own or home() / "jobs" / job_id).absolute()
    if submitted or (resumed is not None and resumed.lies_in(folder)):
        earlier = Earlier.KEEP
    else:
        earlier = Earlier.REMOVE if anew else Earlier.REFUSE
    stack.enter_context(claimed(folder, job_id=job_id, earlier=earlier))
    return folder


def open_record(
    stack: ExitStack,
    job: Job,
    *,
    folder: Path,
    resumed: Resumed | None,
    say: models.OnProgress,
    inputs: Mapping[str, Any],
    submitted: bool = False,
) -> StoreRecorder:
    """Write the job into the store as this process's, and record and log for it until `stack` closes.

    `inputs` are the hashes of its data and code. A `submitted` job is in the store and claimed already.

    Side effects:
        Jobs whose process is gone become FAILED; of a server's jobs the server takes care.
    """
    database = open_database()
    stack.callback(database.close)
    lost, others = ([], []) if submitted else _begin(database, job, folder=folder, resumed=resumed)
    recorder = stack.enter_context(StoreRecorder(database, job.job_id))
    stack.enter_context(logging_to(recorder.log))
    for text in [*map(_lost_note, lost), *map(_other_note, others)]:
        recorder.event("note", text)
        say(text)
    recorder.event(INPUTS_EVENT, t("data and code hashed", "已计算数据与代码的哈希"), data=inputs)
    return recorder


@contextmanager
def telling_failed_start(recorder: Recorder) -> Iterator[None]:
    """Inside, machines are started: if one cannot be, the job ends here, with the reason."""
    try:
        yield
    except asyncio.CancelledError:
        recorder.status(JobStatus.CANCELED)
        raise
    except Exception as error:
        recorder.status(JobStatus.FAILED, error=str(error) or type(error).__name__)
        raise


def _begin(
    database: Database, job: Job, *, folder: Path, resumed: Resumed | None
) -> tuple[Sequence[Job], Sequence[Job]]:
    """Write and claim the job. Returns the jobs that were lost, and those that train on this machine too."""
    before = resumed.job_id if resumed is not None else None
    # The folder could be claimed, so the process that had it is gone, on whatever machine it was.
    surely = before if resumed is not None and resumed.lies_in(folder) else None
    with database.write() as session:
        lost = fail_lost_jobs(session, surely=surely)
        others = live_jobs(session)
        create_job(session, job)
        claim_job(session, job.job_id, this_process(), resumes=before)
    return lost, others


def _lost_note(job: Job) -> str:
    return t(
        f"{job.job_id} was RUNNING without a process and is now FAILED",
        f"{job.job_id} 的进程已不存在，现已标记为 FAILED",
    )


def _other_note(job: Job) -> str:
    return t(
        f"{job.job_id} trains here too (process {job.pid}): both will be slower",
        f"{job.job_id} 也在本机训练（进程 {job.pid}）：两者都会变慢",
    )
