"""A job of the store -> trained in this process: its status, its events and its model end up in the store.

`strop train JOB_ID` is the supervised child of a server; `cli.local_run` trains a job of its own by the same
`train_job`. A job's owner steers it by the store alone: what they want is read twice a second. The process ends
with the job's status written; if it does not, the server takes it for dead and starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import traceback
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from strop.errors import ConfigError, ConflictError, DataError, Problem, StropError, told_of
from strop.locales import msg
from strop.memory import loading
from strop.schema.job import JobStatus

if TYPE_CHECKING:
    from strop.cli.evaluate import CancelToken
    from strop.cli.job_record import OnEvent
    from strop.cli.offline_session import OfflineSession
    from strop.cli.run_folder import Resumed
    from strop.cli.session import Session
    from strop.config.job import JobConfig
    from strop.errors import CheckpointError
    from strop.rl.stop import StopFlag
    from strop.schema.run_event import RunEvent
    from strop.schema.submission import Submission
    from strop.store.database import Database
    from strop.store.recorder import StoreRecorder
    from strop.tracing.event_bus import Subscriber

EXIT_NOT_OURS = 75
"""Another process trains the job, or it has ended: nothing was touched."""

REFUSED_EVENT = "refused"
"""The job could not start: its file or its rows are wrong."""

RESULT_EVENT = "result"
"""The last event of a run: its data is what `strop run --json` prints."""

_POLL_S = 0.5


def train(job_id: str) -> None:
    """"""
    from strop.processes.mark import this_process
    from strop.store.database import open_database
    from strop.store.jobs import claim_job
    from strop.store.submissions import get_submission

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
            asyncio.run(_train_submitted(database, submission))
        except Exception as error:  # noqa: BLE001  the process edge: the owner learns of everything
            print(record_failure(database, job_id, error), file=sys.stderr)
    finally:
        database.close()


async def _train_submitted(database: Database, submission: Submission) -> None:
    from rich.console import Console

    from strop.cli.training_here import listen_to_interrupts
    from strop.config.job import JobConfig
    from strop.rl.stop import StopFlag
    from strop.store.home import home
    from strop.store.jobs import get_job

    job_id = submission.job_id
    folder = home() / "jobs" / job_id
    pythons = await asyncio.to_thread(_lay_out, database, submission)
    config = JobConfig.model_validate(submission.config)
    with database.read() as session:
        config = config.with_origins(get_job(session, job_id).config.get("origins", {}))
    if submission.evaluation is not None:
        await _evaluate(database, submission, config, folder, pythons)
        return
    stop = StopFlag()

    def ready(session: Session | OfflineSession) -> None:
        listen_to_interrupts(stop.set, Console(markup=False, emoji=False))

    run = JobRun(
        database=database, config=config, job=SubmittedJob(database, job_id), folder=folder, pythons=pythons
    )
    await train_job(run, stop, say=StartupLog(database, job_id), ready=ready)


async def _evaluate(
    database: Database, submission: Submission, config: JobConfig, folder: Path, pythons: Mapping[str, Path]
) -> None:
    with loading():
        from strop.cli.evaluate import CancelToken, evaluate

    assert submission.evaluation is not None
    cancel_token, job = CancelToken(), SubmittedJob(database, submission.job_id)
    async with _following_the_owner(database, submission.job_id, cancel_token):
        await evaluate(
            config,
            submission.evaluation,
            submitted=job,
            folder=folder,
            pythons=pythons,
            say=StartupLog(database, submission.job_id),
            cancel_token=cancel_token,
            settle=job.settle,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """A job of the store as a process is to train it.

    `folder` is where its checkpoints go, `pythons` are the interpreters of its functions' layers, `resumed` is
    the checkpoint of another run that it starts from, `watchers` hear what the flow records.
    """

    database: Database
    config: JobConfig
    job: SubmittedJob
    folder: Path
    pythons: Mapping[str, Path]
    resumed: Resumed | None = None
    accept_changes: bool = False
    watchers: Sequence[Subscriber] = ()


async def train_job(
    run: JobRun,
    stop: StopFlag,
    *,
    say: Callable[[str], None],
    ready: Callable[[Session | OfflineSession], None],
) -> dict[str, Any]:
    """Train until the end or until `stop`. `say` hears what takes long beforehand, `ready` the opened session.

    Returns:
        What `strop run --json` prints.
    Raises:
        StropError: it could not start, or it FAILED; the caller records that with `record_failure`.
    """
    from strop.cli.training_here import kind_of_run

    with loading():
        opened, run_flow = kind_of_run(run.config)
    more: dict[str, Any] = {} if run.config.training_type.offline else {"pythons": run.pythons}
    async with (
        _following_the_owner(run.database, run.job.job_id, stop),
        opened(
            run.config,
            out=run.folder,
            resumed=run.resumed,
            watchers=run.watchers,
            say=say,
            submitted=run.job,
            **more,
        ) as session,
    ):
        ready(session)
        try:
            return await _run_flow(run, session, run_flow, stop)
        finally:
            run.job.settle()


async def _run_flow(
    run: JobRun, session: Session | OfflineSession, run_flow: Any, stop: StopFlag
) -> dict[str, Any]:
    """The flow, then the model's name, then the result."""
    from strop.cli.training_here import publish, summary
    from strop.schema.job import PLANNED_EVENT

    recorder, steps = session.backends.recorder, session.total_steps
    recorder.event(PLANNED_EVENT, msg("{steps} steps", steps=steps), data={"total_steps": steps})
    start, unusable = await asyncio.to_thread(_start_of, run.database, session, run.resumed)
    for folder, error in unusable:
        text = msg("{folder} is passed over: {message}", folder=folder, message=error.message)
        recorder.event("checkpoint_damaged", text, data={"folder": str(folder)})
    result = await run_flow(
        session.config,
        session.backends,
        session.training,
        session.validation,
        job_id=session.job_id,
        folder=session.folder,
        stop=stop,
        resume_from=start,
        code=session.code,
        accept_changes=run.accept_changes,
    )
    name = None
    try:
        name = publish(session, result)
    except StropError as error:
        recorder.event("not_published", told_of(error), step=result.steps)
    told = summary(session.config, session.job_id, result, published_as=name)
    if run.job.local or result.status is JobStatus.SUCCEEDED:  # a server's job may have been paused
        recorder.event(RESULT_EVENT, result.status.value, data={"summary": json.dumps(told)})
    return told


def _start_of(
    database: Database, opened: Session | OfflineSession, resumed: Resumed | None
) -> tuple[Path | None, Sequence[tuple[Path, CheckpointError]]]:
    """The checkpoint to start from, and the later ones that cannot be used.

    The job's own newest checkpoint: its trainer died, or it was paused; else that of the run it resumes.

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


class StartupLog:
    """What takes long before the run starts -> events of the job, whose recorder does not exist yet."""

    def __init__(self, database: Database, job_id: str, *, show: Callable[[str], None] | None = None) -> None:
        self._database = database
        self._job_id = job_id
        self._show = show

    def __call__(self, text: str) -> None:
        from strop.schema.job import PREPARING_EVENT, Event
        from strop.store.events import record_event

        if self._show is not None:
            self._show(text)
        event = Event(job_id=self._job_id, kind=PREPARING_EVENT, message=text, created_at=datetime.now(UTC))
        with self._database.write() as session:
            record_event(session, event)


class SubmittedJob:
    """A job that is in the store already, and what the statuses that the flow records become there.

    The job is RUNNING already. A final status is held back until `settle`, so that whoever waits for it finds
    everything, the model too. A run that was stopped is a pause or a cancel, as its owner wants; a server's job
    that nobody wanted to stop (the machine goes down) stays RUNNING, and the server starts it again.
    """

    def __init__(
        self, database: Database, job_id: str, *, local: bool = False, on_event: OnEvent | None = None
    ) -> None:
        self._database = database
        self.job_id = job_id
        self.local = local
        self.on_event = on_event
        self._recorder: StoreRecorder | None = None
        self._end: JobStatus | None = None

    def around(self, recorder: StoreRecorder) -> Subscriber:
        """Subscribes to the run in the place of `recorder`, which gets everything from it but statuses."""
        self._recorder = recorder
        return self

    def receive(self, event: RunEvent) -> None:
        from strop.schema.run_event import StatusChanged

        assert self._recorder is not None
        if isinstance(event, StatusChanged):
            self.move(event.status, event.error)
        else:
            self._recorder.receive(event)

    def move(self, status: JobStatus, error: str | None) -> None:
        assert self._recorder is not None
        match status:
            case JobStatus.RUNNING:
                return
            case JobStatus.SUCCEEDED | JobStatus.CANCELED:
                self._end = status
            case _:
                self._recorder.status(status, error=error)

    def settle(self) -> None:
        """Write the final status, once everything that belongs to it is there."""
        from strop.schema.submission import Wanted
        from strop.store.submissions import wanted_of

        if self._end is None or self._recorder is None:
            return
        end, self._end = self._end, None
        if end is JobStatus.CANCELED and not self.local:
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


@contextlib.asynccontextmanager
async def _following_the_owner(
    database: Database, job_id: str, stop: StopFlag | CancelToken
) -> AsyncGenerator[None]:
    """While the block runs, `stop` is set once the job's owner wants it to pause or to end."""
    watching = asyncio.create_task(_watch(database, job_id, stop))
    try:
        yield
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def _watch(database: Database, job_id: str, stop: StopFlag | CancelToken) -> None:
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
        await asyncio.sleep(_POLL_S)


def record_failure(database: Database, job_id: str, error: Exception) -> str:
    """Write the end of a job that could not start, or that ended before it could say so.

    Returns:
        What went into its log: the error, or the traceback of one that is a bug.
    """
    from strop.schema.job import Event, LogLine
    from strop.store.events import record_event
    from strop.store.jobs import get_job, move_job
    from strop.store.logs import record_lines

    known = isinstance(error, StropError)
    reason = told_of(error) if known else f"{type(error).__name__}: {error}"
    text = reason if known else "".join(traceback.format_exception(error))
    now = datetime.now(UTC)
    lines = [
        LogLine(job_id=job_id, component="trainer", stream="stderr", text=line, created_at=now)
        for line in text.splitlines()
    ]
    with database.write() as session:
        record_lines(session, lines)
        if is_wrong_input(error):
            refused = Event(job_id=job_id, kind=REFUSED_EVENT, message=reason, created_at=now)
            record_event(session, refused)
        if not get_job(session, job_id).status.final:
            move_job(session, job_id, JobStatus.FAILED, error=reason)
    return text


def is_wrong_input(error: Exception) -> bool:
    """Whether the job's file or its rows are wrong, so that the same again would be refused again."""
    return isinstance(error, ConfigError | DataError)
