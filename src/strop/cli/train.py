"""`strop train JOB_ID`: the supervised child of a server. Reads a submitted job from the store and trains it.

The job's owner steers it by the store alone: what he wants is looked at twice a second. The process ends with
the job's status written; if it does not, the server takes it for dead and starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strop.bilingual import both, chinese
from strop.cli.text import t
from strop.errors import ConfigError, ConflictError, DataError, Problem, StropError, told_of
from strop.memory import loading, use_huge_pages
from strop.schema.job import JobStatus

if TYPE_CHECKING:
    from strop.cli.alarms import Alarm, AlarmingRecorder
    from strop.cli.evaluate import Ending
    from strop.cli.offline_session import OfflineSession
    from strop.cli.resume import Resumed
    from strop.cli.session import Session
    from strop.config.job import JobConfig
    from strop.errors import CheckpointError
    from strop.rl.interfaces import Recorder
    from strop.rl.stop import StopFlag
    from strop.schema.submission import LocalRun, Submission
    from strop.store.database import Database
    from strop.store.recorder import StoreRecorder

EXIT_NOT_OURS = 75
"""Another process trains the job, or it has ended: nothing was touched."""

_GLANCE_S = 0.5


def train(
    job_id: str,
    tied: Annotated[bool, typer.Option("--tied", hidden=True)] = False,
    alarms: Annotated[int | None, typer.Option("--alarms", hidden=True)] = None,
) -> None:
    """"""
    use_huge_pages()
    from strop.cli.alarms import alarm_to
    from strop.store.database import open_database
    from strop.store.jobs import claim_job
    from strop.store.processes import this_process
    from strop.store.submissions import get_submission

    if tied:
        _end_with_stdin()
    alarm = None if alarms is None else alarm_to(alarms)
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
            asyncio.run(_train(database, submission, alarm))
        except StropError as error:
            _fail(database, job_id, told_of(error), wrong_input=isinstance(error, ConfigError | DataError))
        except Exception as error:  # noqa: BLE001  the process edge: the owner learns of everything
            _fail(database, job_id, f"{type(error).__name__}: {error}", traceback.format_exc())
    finally:
        database.close()


train.__doc__ = t("Train a submitted job; the server starts this.", "训练一个已提交的任务；由服务启动。")


async def _train(database: Database, submission: Submission, alarm: Alarm | None) -> None:
    from rich.console import Console

    from strop.cli.resume import find_resumed
    from strop.cli.training_here import kind_of_run, listen_to_interrupts
    from strop.config.job import JobConfig
    from strop.rl.stop import StopFlag
    from strop.store.home import home
    from strop.store.jobs import get_job

    folder = home() / "jobs" / submission.job_id
    pythons = await asyncio.to_thread(_lay_out, database, submission)
    local = submission.local
    config = JobConfig.model_validate(submission.config)
    with database.read() as session:
        config = config.with_origins(get_job(session, submission.job_id).config.get("origins", {}))
    if submission.evaluation is not None:
        await _evaluate(database, submission, config, folder, pythons)
        return
    resumed = None
    if local is not None:
        resumed = find_resumed(str(local.resume), local.out) if local.resume is not None else None
        folder = local.out or (resumed.folder if resumed is not None else None) or folder
    stop = StopFlag()
    watching = asyncio.create_task(_watch(database, submission.job_id, stop))
    status = SubmittedStatus(database, submission.job_id, local=local is not None, alarm=alarm)
    with loading():
        opened, run_flow = kind_of_run(config)
    more: dict[str, Any] = {} if config.training_type.offline else {"pythons": pythons}
    if local is not None:
        more["resumed"] = resumed
    say = _Saying(database, submission.job_id)
    try:
        async with opened(config, out=folder, watchers=[], say=say, submitted=status, **more) as session:
            listen_to_interrupts(stop.set, Console(markup=False, emoji=False))
            try:
                await _run(database, session, run_flow, local=local, resumed=resumed, stop=stop)
            finally:
                status.settle()
    finally:
        await asyncio.to_thread(status.wait)
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def _evaluate(
    database: Database, submission: Submission, config: JobConfig, folder: Path, pythons: Mapping[str, Path]
) -> None:
    with loading():
        from strop.cli.evaluate import Ending, evaluate

    assert submission.evaluation is not None
    ending, status = Ending(), SubmittedStatus(database, submission.job_id, local=False)
    watching = asyncio.create_task(_watch(database, submission.job_id, ending))
    try:
        await evaluate(
            config,
            submission.evaluation,
            submitted=status,
            folder=folder,
            pythons=pythons,
            say=_Saying(database, submission.job_id),
            ending=ending,
            settle=status.settle,
        )
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def _run(
    database: Database,
    session: Session | OfflineSession,
    run_flow: Any,
    *,
    local: LocalRun | None,
    resumed: Resumed | None,
    stop: StopFlag,
) -> None:
    """The flow, then the model's name, then the last words."""
    from strop.cli.follow import PLANNED_EVENT, RESULT_EVENT
    from strop.cli.training_here import publish, summary

    recorder, steps = session.machines.recorder, session.total_steps
    recorder.event(PLANNED_EVENT, both(f"{steps} steps", f"共 {steps} 步"), data={"total_steps": steps})
    start, unusable = await asyncio.to_thread(_start_of, database, session, resumed)
    for folder, error in unusable:
        text = both(f"{folder} is passed over: {error.message}", f"跳过 {folder}：{chinese(error.message)}")
        recorder.event("checkpoint_damaged", text, data={"folder": str(folder)})
    result = await run_flow(
        session.config,
        session.machines,
        session.training,
        session.validation,
        job_id=session.job_id,
        folder=session.folder,
        stop=stop,
        resume_from=start,
        code=session.code,
        accept_changes=local is not None and local.accept_changes,
    )
    name = None
    try:
        name = publish(session, result)
    except StropError as error:
        recorder.event("not_published", told_of(error), step=result.steps)
    if local is not None or result.status is JobStatus.SUCCEEDED:  # a submitted one may have been paused
        told = summary(session.config, session.job_id, result, published_as=name)
        recorder.event(RESULT_EVENT, result.status.value, data={"summary": json.dumps(told)})


def _start_of(
    database: Database, opened: Session | OfflineSession, resumed: Resumed | None
) -> tuple[Path | None, Sequence[tuple[Path, CheckpointError]]]:
    """Where to go on from, and the later checkpoints that cannot be used.

    The job's own newest checkpoint: its trainer died, or it was paused; else that of the run it goes on from.

    Raises:
        ConfigError: the job has checkpoints, and none can be used.
    """
    from strop.cli.run_folder import CHECKPOINTS, unusable_text
    from strop.learners.local.checkpoint import find_checkpoints
    from strop.store.checkpoints import list_checkpoints

    shelf = opened.folder / CHECKPOINTS
    if resumed is None:
        found = find_checkpoints(shelf)
        if found.newest is None and found.unusable:
            message, fix = unusable_text(opened.folder, found)
            raise ConfigError(str(shelf), [Problem(place=str(shelf), message=message, fix=fix)])
        return found.newest, found.unusable
    with database.read() as session:
        own = {one.folder for one in list_checkpoints(session, opened.job_id)}
    if own and (found := find_checkpoints(shelf)).newest in own:
        return found.newest, found.unusable
    at = int(resumed.saved["step"])
    return resumed.checkpoint, find_checkpoints(resumed.checkpoint.parent, beyond=at).unusable


class _Saying:
    """What takes long before the run begins -> events of the job: its recorder is not there yet."""

    def __init__(self, database: Database, job_id: str) -> None:
        self._database = database
        self._job_id = job_id

    def __call__(self, text: str) -> None:
        from strop.schema.job import PREPARING_EVENT, Event
        from strop.store.events import record_event

        event = Event(job_id=self._job_id, kind=PREPARING_EVENT, message=text, created_at=datetime.now(UTC))
        with self._database.write() as session:
            record_event(session, event)


class SubmittedStatus:
    """What the flow says of its status -> what the job's status becomes.

    The server has moved the job to RUNNING already. An end in order waits for `settle`, so that whoever waits for
    it finds everything, the model too. An end that was asked for is a pause, a cancel, or, when nobody
    wanted it (the machine goes down), none: the job stays RUNNING and the server starts it again.
    """

    def __init__(self, database: Database, job_id: str, *, local: bool, alarm: Alarm | None = None) -> None:
        self._database = database
        self._alarm = alarm
        self.job_id = job_id
        self.local = local
        self._recorder: StoreRecorder | None = None
        self._told: AlarmingRecorder | None = None
        self._end: JobStatus | None = None

    def around(self, recorder: StoreRecorder) -> Recorder:
        """The recorder that the flow gets instead."""
        from strop.cli.alarms import AlarmingRecorder

        self._recorder = recorder
        told = self.told

        class Recorder(AlarmingRecorder):
            """Hands everything on; statuses go another way."""

            def status(self, status: JobStatus, *, error: str | None = None) -> None:
                told(status, error)

        self._told = Recorder(recorder, self._alarm)
        return self._told

    def wait(self) -> None:
        """Until no note is left that neither the database has nor the alarm."""
        if self._told is not None:
            self._told.wait()

    def told(self, status: JobStatus, error: str | None) -> None:
        assert self._recorder is not None
        match status:
            case JobStatus.RUNNING:
                return
            case JobStatus.SUCCEEDED | JobStatus.CANCELED:
                self._end = status
            case _:
                self._recorder.status(status, error=error)

    def settle(self) -> None:
        """Write the end, once everything that belongs to it is there."""
        from strop.schema.submission import Wanted
        from strop.store.submissions import wanted_of

        if self._end is None or self._recorder is None:
            return
        end, self._end = self._end, None
        if end is JobStatus.CANCELED:
            self._recorder.flush()
            with self._database.read() as session:
                wanted = wanted_of(session, self.job_id)
            asked = {Wanted.PAUSE: JobStatus.SUSPENDED, Wanted.CANCEL: JobStatus.CANCELED}.get(wanted)
            if asked is None:
                return
            end = asked
        self._recorder.status(end)


def _lay_out(database: Database, submission: Submission) -> Mapping[str, Path]:
    """Code, environments and rows of the job onto this machine, where they are missing.

    Returns:
        The interpreters of functions that have a layer, by label.
    """
    from strop.service.bundles import unpack
    from strop.service.job_plan import lay_out_files
    from strop.service.settings import Limits
    from strop.store.blobs import Blobs
    from strop.store.entities import get_layer
    from strop.store.home import home
    from strop.store.jobs import get_job
    from strop.workers.layers import build_layer

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


async def _watch(database: Database, job_id: str, stop: StopFlag | Ending) -> None:
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
            with contextlib.suppress(OSError):  # the log's disk is full as well
                print(f"what the owner wants could not be read: {error}", file=sys.stderr)
        await asyncio.sleep(_GLANCE_S)


def _end_with_stdin() -> None:
    """End, as hard as by SIGKILL, when whoever holds the other end of stdin has: no run goes on without its user."""

    def wait() -> None:
        while os.read(0, 1):  # not sys.stdin: its lock would be held at the interpreter's end
            continue
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="tied", daemon=True).start()


def _fail(database: Database, job_id: str, error: str, trace: str = "", *, wrong_input: bool = False) -> None:
    """Write the end of a job that could not begin, or that ended before it could say so."""
    from strop.cli.follow import REFUSED_EVENT
    from strop.schema.job import Event, LogLine
    from strop.store.events import record_event
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
        if wrong_input:
            refused = Event(job_id=job_id, kind=REFUSED_EVENT, message=error, created_at=now)
            record_event(session, refused)
        if not get_job(session, job_id).status.final:
            move_job(session, job_id, JobStatus.FAILED, error=error)
