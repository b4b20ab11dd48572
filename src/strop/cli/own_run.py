"""A job file -> a job of a server that this command keeps for it, shown while it trains, until it has ended.

What `strop run` and `strop demo` have in common.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from strop.cli.interrupts import EXIT_CANCELED, Interrupts, ending_text, leaving_at_once
from strop.cli.next_steps import Given, after_failure, went_on
from strop.cli.text import t
from strop.errors import ConflictError, RequestError, StropError
from strop.schema.job import JobStatus

if TYPE_CHECKING:
    from strop.cli.resume import Resumed
    from strop.client import Client
    from strop.schema.responses import JobInfo
    from strop.schema.submission import LocalRun


def checked_folder(out: Path | None, resumed: Resumed | None, *, anew: bool = False) -> Path | None:
    """The folder that a run asks for, if it asks for one, proven writable and free before anything is started.

    Raises:
        ConfigError: it cannot be written, or is another run's.
    Side effects:
        With `anew` checkpoints that lie there are removed.
    """
    from strop.cli.run_folder import claim_folder

    if out is None and (resumed is None or resumed.folder is None):
        return None
    with ExitStack() as stack:
        return claim_folder(stack, "strop run", out=out, resumed=resumed, anew=anew)


Ended = Callable[["Client", "JobInfo"], None]
"""Looks at a job that has SUCCEEDED, while its server is still there."""


def train_with_own_server(
    asked: LocalRun, console: Console, *, job: Path, then: Ended | None = None
) -> dict[str, Any]:
    """Train to the end or to Ctrl-C. Returns what `strop run --json` prints. `job` is the file as its user named it.

    Raises:
        RequestError: the job file or its rows are wrong. StropError: the job FAILED; says which job, why, and
            what to type next.
        typer.Exit: a second Ctrl-C ended it at once; what was kept and how to go on has been told.
    """
    typed: Given = (asked.overrides, asked.given_by)
    with leaving_at_once():
        from strop.cli.follow import REFUSED_EVENT, RESULT_EVENT, Alarms, follow
        from strop.cli.private_server import private_server

    alarms = Alarms(console)
    with (
        Interrupts(lambda: _say_ending(console)) as interrupts,
        private_server(trains=True, on_alarm=alarms.heard) as own,
    ):
        interrupts.check()
        client = own.client
        job_id = client.jobs.run(asked).job_id
        interrupts.steer(lambda: _cancel(client, job_id, console), lambda: own.supervisor.end(job_id))
        ended = follow(client, job_id, console, own=True, told=alarms.told)
        interrupts.rest()
        if ended.status is JobStatus.FAILED:
            if client.jobs.events(job_id, kind=REFUSED_EVENT):
                raise RequestError(f"{job_id}: {ended.message}")
            resume = _kept(client, job_id, asked)
            what_next = after_failure(job, typed, job_id=job_id, resume=resume)
            raise StropError(f"{job_id}: {ended.message}\n{what_next}")
        results = client.jobs.events(job_id, kind=RESULT_EVENT)
        if not results:
            console.print(
                f"{job_id}   {ended.status.value}   {t('ended at once', '已立即结束')}", highlight=False
            )
            for line in went_on(job, typed, resume=_kept(client, job_id, asked)):
                console.print(line, highlight=False, soft_wrap=True, markup=False)
            raise typer.Exit(EXIT_CANCELED)
        if then is not None and ended.status is JobStatus.SUCCEEDED:
            then(client, ended)
        return json.loads(results[-1].data["summary"])


def _kept(client: Client, job_id: str, asked: LocalRun) -> str | None:
    """What `--resume` takes: the job, where it has saved a checkpoint, else the one that it went on from."""
    if client.jobs.checkpoints(job_id):
        return job_id
    return None if asked.resume is None else str(asked.resume)


def _say_ending(console: Console) -> None:
    console.print(ending_text(), style="yellow")


def _cancel(client: Client, job_id: str, console: Console) -> None:
    try:
        client.jobs.cancel(job_id)
    except ConflictError:
        return  # it has just ended
    except StropError as error:
        console.print(str(error), style="red", markup=False)
