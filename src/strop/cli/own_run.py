"""A job file -> a job of a server that this command keeps for it, shown while it trains, until it has ended.

What `strop run` and `strop demo` have in common.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from strop.cli.text import t
from strop.errors import ConflictError, RequestError, StropError
from strop.schema.job import JobStatus

if TYPE_CHECKING:
    from strop.cli.resume import Resumed
    from strop.client import Client
    from strop.schema.shown import JobInfo
    from strop.schema.submission import LocalRun

EXIT_CANCELED = 130
"""As a shell reports a program ended by Ctrl-C."""


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


def train_with_own_server(asked: LocalRun, console: Console, *, then: Ended | None = None) -> dict[str, Any]:
    """Train to the end or to Ctrl-C. Returns what `strop run --json` prints.

    Raises:
        RequestError: the job file or its rows are wrong. StropError: the job FAILED; says which job, and why.
        typer.Exit: a second Ctrl-C ended it without a checkpoint.
    """
    from strop.cli.follow import REFUSED_EVENT, RESULT_EVENT, Alarms, follow
    from strop.cli.private_server import private_server

    _hear_interrupts()
    alarms = Alarms(console)
    with private_server(trains=True, on_alarm=alarms.heard) as own:
        client = own.client
        job_id = client.jobs.run(asked).job_id
        with _interrupts(
            lambda: _cancel(client, job_id, console), lambda: own.supervisor.end(job_id), console
        ):
            ended = follow(client, job_id, console, own=True, told=alarms.told)
        if ended.status is JobStatus.FAILED:
            refused = bool(client.jobs.events(job_id, kind=REFUSED_EVENT))
            raise (RequestError if refused else StropError)(f"{job_id}: {ended.message}")
        results = client.jobs.events(job_id, kind=RESULT_EVENT)
        if not results:
            raise typer.Exit(EXIT_CANCELED)
        if then is not None and ended.status is JobStatus.SUCCEEDED:
            then(client, ended)
        return json.loads(results[-1].data["summary"])


def _hear_interrupts() -> None:
    """A shell starts what it puts in the background deaf to SIGINT, and SIGTERM would end all here at once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


@contextmanager
def _interrupts(first: Callable[[], None], second: Callable[[], None], console: Console) -> Generator[None]:
    """While the block runs, Ctrl-C (or SIGTERM) does `first`, and once more `second`; in a thread, for the main
    one is reading.
    """
    asked = 0

    def interrupted(*_: object) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            console.print(
                t(
                    "ending after the current phase, with a checkpoint; once more to end without one",
                    "当前阶段结束后保存检查点并退出；再按一次则不保存",
                ),
                style="yellow",
            )
        threading.Thread(target=first if asked == 1 else second, daemon=True).start()

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cancel(client: Client, job_id: str, console: Console) -> None:
    try:
        client.jobs.cancel(job_id)
    except ConflictError:
        return  # it has just ended
    except StropError as error:
        console.print(str(error), style="red", markup=False)
