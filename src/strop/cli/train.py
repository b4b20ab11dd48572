"""`strop train JOB_ID`: the supervised child of a server. Reads a submitted job from the store and trains it.

The job's owner steers it by the store alone: what he wants is looked at twice a second. The process ends with
the job's status written; if it does not, the server takes it for dead and starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from strop.cli.memory import use_huge_pages
from strop.cli.text import t
from strop.errors import ConflictError, StropError
from strop.schema.job import JobStatus

if TYPE_CHECKING:
    from strop.pipeline.ports import Recorder
    from strop.pipeline.stop import StopFlag
    from strop.schema.submission import Submission
    from strop.store.database import Database
    from strop.store.recorder import StoreRecorder

EXIT_NOT_OURS = 75
"""Another process trains the job, or it has ended: nothing was touched."""

_GLANCE_S = 0.5


def train(job_id: str) -> None:
    """"""
    from strop.store.database import open_database
    from strop.store.jobs import claim_job
    from strop.store.processes import this_process
    from strop.store.submissions import get_submission

    use_huge_pages()
    database = open_database()
    try:
        try:
            with database.write() as session:
                claim_job(session, job_id, this_process())
                submission = get_submission(session, job_id)
        except ConflictError as error:
            print(error, file=sys.stderr)
            raise typer.Exit(EXIT_NOT_OURS) from error
        try:
            asyncio.run(_train(database, submission))
        except StropError as error:
            _fail(database, job_id, str(error))
        except Exception as error:  # noqa: BLE001  the process edge: the owner learns of everything
            _fail(database, job_id, f"{type(error).__name__}: {error}", traceback.format_exc())
    finally:
        database.close()


train.__doc__ = t("Train a submitted job; the server starts this.", "训练一个已提交的任务；由服务启动。")


async def _train(database: Database, submission: Submission) -> None:
    from rich.console import Console

    from strop.cli.follow import PLANNED_EVENT
    from strop.cli.training_here import kind_of_run, listen_to_interrupts, publish
    from strop.pipeline.stop import StopFlag
    from strop.policy.checkpoint import latest_checkpoint
    from strop.schema.config import JobConfig
    from strop.store.home import home

    folder = home() / "jobs" / submission.job_id
    pythons = await asyncio.to_thread(_lay_out, database, submission)
    config = JobConfig.model_validate(submission.config)
    stop = StopFlag()
    watching = asyncio.create_task(_watch(database, submission.job_id, stop))
    status = SubmittedStatus(database, submission.job_id)
    opened, run_flow = kind_of_run(config)
    more = {} if config.training_type.offline else {"pythons": pythons}
    try:
        async with opened(config, out=folder, watchers=[], say=print, submitted=status, **more) as session:
            listen_to_interrupts(stop.set, Console())
            steps = session.total_steps
            session.machines.recorder.event(
                PLANNED_EVENT, t(f"{steps} steps", f"共 {steps} 步"), data={"total_steps": steps}
            )
            result = await run_flow(
                session.config,
                session.machines,
                session.training,
                session.validation,
                job_id=session.job_id,
                folder=session.folder,
                stop=stop,
                resume_from=await asyncio.to_thread(latest_checkpoint, folder / "checkpoints"),
            )
            try:
                publish(session, result)
            except StropError as error:
                session.machines.recorder.event("not_published", str(error), step=result.steps)
            status.settle()
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


class SubmittedStatus:
    """What the flow says of its status -> what the job's status becomes.

    The server has moved the job to RUNNING already. SUCCEEDED waits until the model is published (`settle`), so
    that whoever waits for it finds the model. An end that was asked for is a pause, a cancel, or, when nobody
    wanted it (the machine goes down), none: the job stays RUNNING and the server starts it again.
    """

    def __init__(self, database: Database, job_id: str) -> None:
        self._database = database
        self.job_id = job_id
        self._recorder: StoreRecorder | None = None
        self._succeeded = False

    def around(self, recorder: StoreRecorder) -> Recorder:
        """The recorder that the flow gets instead."""
        from strop.cli.broadcast import Broadcast

        self._recorder = recorder
        told = self.told

        class Recorder(Broadcast):
            """Hands everything on; statuses go another way."""

            def status(self, status: JobStatus, *, error: str | None = None) -> None:
                told(status, error)

        return Recorder([recorder])

    def told(self, status: JobStatus, error: str | None) -> None:
        from strop.schema.submission import Wanted
        from strop.store.submissions import wanted_of

        assert self._recorder is not None
        match status:
            case JobStatus.RUNNING:
                return
            case JobStatus.SUCCEEDED:
                self._succeeded = True
            case JobStatus.CANCELED:
                self._recorder.flush()
                with self._database.read() as session:
                    wanted = wanted_of(session, self.job_id)
                if wanted is Wanted.PAUSE:
                    self._recorder.status(JobStatus.SUSPENDED)
                elif wanted is Wanted.CANCEL:
                    self._recorder.status(JobStatus.CANCELED)
            case _:
                self._recorder.status(status, error=error)

    def settle(self) -> None:
        """Write the success, once everything that belongs to it is there."""
        if self._succeeded and self._recorder is not None:
            self._recorder.status(JobStatus.SUCCEEDED)


def _lay_out(database: Database, submission: Submission) -> Mapping[str, Path]:
    """Code, environments and rows of the job onto this machine, where they are missing.

    Returns:
        The interpreters of functions that have a layer, by label.
    """
    from strop.runtime.layers import build_layer
    from strop.server.bundles import unpack
    from strop.server.job_plan import lay_out_files
    from strop.server.settings import Limits
    from strop.store.blobs import Blobs
    from strop.store.entities import get_layer
    from strop.store.home import home
    from strop.store.jobs import get_job

    blobs, place, limits = Blobs(), home(), Limits()
    for bundle in submission.bundles.values():
        unpack(blobs, place, bundle, limits)
    with database.read() as session:
        workspace_id = get_job(session, submission.job_id).workspace_id
        layers = {
            label: get_layer(session, code, workspace_id=workspace_id)
            for label, code in submission.layers.items()
        }
        folder = place / "jobs" / submission.job_id
        lay_out_files(session, blobs, submission.files, folder=folder, workspace_id=workspace_id)
    return {
        label: build_layer(place, layer.layer_code, layer.requirements) for label, layer in layers.items()
    }


async def _watch(database: Database, job_id: str, stop: StopFlag) -> None:
    """Ask the run to end once its owner wants that."""
    from strop.schema.submission import Wanted
    from strop.store.submissions import wanted_of

    def read() -> Wanted:
        with database.read() as session:
            return wanted_of(session, job_id)

    while True:
        try:
            if await asyncio.to_thread(read) is not Wanted.RUN:
                stop.set()
                return
        except StropError as error:
            print(f"what the owner wants could not be read: {error}", file=sys.stderr)
        await asyncio.sleep(_GLANCE_S)


def _fail(database: Database, job_id: str, error: str, trace: str = "") -> None:
    """Write the end of a job that could not begin, or that ended before it could say so."""
    from strop.schema.job import LogLine
    from strop.store.jobs import get_job, move_job
    from strop.store.logs import record_lines

    now = datetime.now(UTC)
    lines = [
        LogLine(job_id=job_id, component="trainer", stream="stderr", text=line, created_at=now)
        for line in (trace or error).splitlines()
    ]
    print(trace or error, file=sys.stderr)
    with database.write() as session:
        record_lines(session, lines)
        if not get_job(session, job_id).status.final:
            move_job(session, job_id, JobStatus.FAILED, error=error)
