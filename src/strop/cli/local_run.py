"""A checked job -> a job of this home's store, trained in this process and shown in its terminal.

What `strop run` and `strop demo` have in common. No server takes part, but one that runs in this home shows the
job, and whoever cancels it there ends it here. Without this process the job is over: it is resumed as a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from strop.cli.interrupts import EXIT_CANCELED, Interrupts, ending_text, leaving_at_once
from strop.cli.next_steps import RunCommand, after_failure, continuation
from strop.cli.text import t, told
from strop.errors import RequestError, StropError, told_of
from strop.locales import msg
from strop.memory import loading
from strop.schema.job import JobStatus
from strop.schema.submission import LocalRun

if TYPE_CHECKING:
    from strop.cli.progress import LiveProgress
    from strop.cli.run_folder import Resumed
    from strop.config.job import JobConfig
    from strop.store.database import Database

Ended = Callable[["Database", Mapping[str, Any]], None]
"""Takes the summary of a run that has SUCCEEDED."""


def checked_folder(out: Path | None, resumed: Resumed | None, *, anew: bool = False) -> Path | None:
    """The folder that a run asks for, if it asks for one, proven writable and free before anything is started.

    Raises:
        ConfigError: it cannot be written, or is another run's.
    Side effects:
        With `anew` the checkpoints in it are removed.
    """
    from strop.cli.run_folder import claim_folder

    if out is None and (resumed is None or resumed.folder is None):
        return None
    with ExitStack() as stack:
        return claim_folder(stack, "strop run", out=out, resumed=resumed, anew=anew)


def train_locally(
    config: JobConfig,
    command: RunCommand,
    folder: Path | None,
    console: Console,
    *,
    resumed: Resumed | None = None,
    then: Ended | None = None,
) -> dict[str, Any]:
    """Train to the end or to Ctrl-C. `folder` is the one that was asked for, checked; None: one of the job's own.

    Returns:
        What `strop run --json` prints.

    Raises:
        RequestError: the job file or its rows are wrong. StropError: the job FAILED; says which job, why, and
            what to type next.
        KeyboardInterrupt: Ctrl-C came before the job was made.
    Side effects:
        A second Ctrl-C ends the process, after what was kept and how to resume has been printed.
    """
    asked = LocalRun(
        job_file=command.job.absolute(),
        overrides=command.overrides,
        given_by=command.given_by,
        out=folder,
        resume=resumed.checkpoint if resumed is not None else None,
        accept_changes=command.accept_changes,
    )
    with leaving_at_once(), loading():
        from strop.cli.progress import LiveProgress
        from strop.cli.train import record_failure
        from strop.store.database import open_database

    with contextlib.closing(open_database()) as database:
        with Interrupts(lambda: console.print(ending_text(), style="yellow", soft_wrap=True)) as interrupts:
            interrupts.check()
            job_id = _create_job(database, config, asked)
            live = LiveProgress(console)
            try:
                told = _train(
                    database, config, asked, job_id, live, interrupts, resumed=resumed, command=command
                )
            except Exception as error:
                record_failure(database, job_id, error)
                raise _failure(database, job_id, error, asked, command) from error
            interrupts.rest()
            if then is not None and told["status"] == JobStatus.SUCCEEDED.value:
                then(database, told)
            return told


def _create_job(database: Database, config: JobConfig, asked: LocalRun) -> str:
    """The job as this process's: RUNNING, with what `strop run` was asked for. Returns its id."""
    from strop.config.describing import describe
    from strop.processes.mark import this_process
    from strop.service.job_record import new_job_id, record_job

    request = asked.model_dump(mode="json")
    made = record_job(database, new_job_id(), config, describe(config), request=request, owner=this_process())
    return made.job.job_id


def _train(
    database: Database,
    config: JobConfig,
    asked: LocalRun,
    job_id: str,
    live: LiveProgress,
    interrupts: Interrupts,
    *,
    resumed: Resumed | None,
    command: RunCommand,
) -> dict[str, Any]:
    from strop.cli.train import JobRun, StartupLog, SubmittedJob, train_job
    from strop.rl.stop import StopFlag
    from strop.store.home import home

    stop = StopFlag()

    def cancel() -> None:
        stop.set()
        _cancel(database, job_id)

    def end_at_once() -> None:
        live.close()
        _end_at_once(database, job_id, asked, live.console, command)

    interrupts.steer(cancel, end_at_once)
    run = JobRun(
        database=database,
        config=config,
        job=SubmittedJob(database, job_id, local=True, on_event=_shown_by(live)),
        folder=asked.out or home() / "jobs" / job_id,
        pythons={},
        resumed=resumed,
        accept_changes=asked.accept_changes,
        watchers=[live],
    )
    say = StartupLog(database, job_id, show=live.say)
    with live:
        return asyncio.run(
            train_job(run, stop, say=say, ready=lambda session: live.plan(session.total_steps))
        )


def _shown_by(live: LiveProgress) -> Callable[[str, str], None]:
    from strop.cli.progress import SILENT_EVENTS

    def show(kind: str, message: str) -> None:
        if kind not in SILENT_EVENTS:
            live.note(message)

    return show


def _failure(
    database: Database, job_id: str, error: Exception, asked: LocalRun, command: RunCommand
) -> StropError:
    """What the command says of it: the job, the reason, and what to type next where that helps."""
    from strop.cli.train import is_wrong_input

    reason = told_of(error) if isinstance(error, StropError) else f"{type(error).__name__}: {error}"
    text = f"{job_id}: {told(reason)}"
    if is_wrong_input(error):
        return RequestError(text)
    what_next = after_failure(command, job_id=job_id, resume=_kept(database, job_id, asked))
    return StropError(msg("{text}\n{what_next}", text=text, what_next=what_next))


def _kept(database: Database, job_id: str, asked: LocalRun) -> str | None:
    """What `--resume` takes: the job, where it has saved a checkpoint, else the one that it started from."""
    from strop.store.checkpoints import list_checkpoints

    with database.read() as session:
        if list_checkpoints(session, job_id):
            return job_id
    return None if asked.resume is None else str(asked.resume)


def _cancel(database: Database, job_id: str) -> None:
    """Note in the store that the job is being canceled. The run ends though the store should refuse."""
    from strop.schema.job import Event
    from strop.schema.submission import Wanted
    from strop.store.events import record_event
    from strop.store.jobs import move_job
    from strop.store.submissions import want

    message = msg("Ctrl-C asked to cancel")
    event = Event(job_id=job_id, kind="cancel_asked", message=message, created_at=datetime.now(UTC))
    with contextlib.suppress(StropError), database.write() as session:
        move_job(session, job_id, JobStatus.CANCELING)
        want(session, job_id, Wanted.CANCEL)
        record_event(session, event)


def _end_at_once(
    database: Database, job_id: str, asked: LocalRun, console: Console, command: RunCommand
) -> None:
    """End the process as a kill would, but with the job's status written and its user told how to resume.

    Function workers end with the process, however it ends. A checkpoint that is being written is left behind
    under its temporary name.
    """
    from strop.schema.job import Event
    from strop.store.events import record_event
    from strop.store.jobs import move_job

    message = msg("the run was ended at once, as asked")
    event = Event(job_id=job_id, kind="trainer_ended", message=message, created_at=datetime.now(UTC))
    try:
        with contextlib.suppress(StropError), database.write() as session:
            record_event(session, event)
            move_job(session, job_id, JobStatus.CANCELED)
        resume = None
        with contextlib.suppress(StropError):
            resume = _kept(database, job_id, asked)
        ended = t("ended at once")
        console.print(f"{job_id}   {JobStatus.CANCELED.value}   {ended}", highlight=False)
        for line in continuation(command, resume=resume):
            console.print(line, highlight=False, soft_wrap=True, markup=False)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(EXIT_CANCELED)
