"""A job file -> a job of a server, with words on the way. For `strop jobs submit` and `strop run --server`."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from strop.cli.text import t
from strop.schema.job import JobStatus

if TYPE_CHECKING:
    from strop.client import Client
    from strop.schema.responses import JobInfo


def submit_file(client: Client, path: Path, given: Mapping[str, object], console: Console) -> JobInfo:
    """Check everything here, then send.

    Raises:
        ConfigError, DataError: what is wrong, before anything was sent. RequestError: the server refused.
    """
    from strop.client import submission
    from strop.client.tuning import read_tuning

    def say(text: str) -> None:
        console.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)

    tuning, workspace = read_tuning(path, {}, settings=given)
    return client.run(submission.run(tuning, workspace, say))


def run_there(
    server: str, path: Path, given: Mapping[str, object], *, as_json: bool, here: bool = False
) -> int:
    """Submit, show it as it trains, tell how it ended. Ctrl-C cancels the job; a second one leaves that to the
    server, as any other end of this process does. A server that is `here` has folders that mean something to
    its client.

    Returns:
        The exit status: 0 SUCCEEDED, 1 FAILED, 130 CANCELED.
    """
    from strop.cli.next_steps import run_command
    from strop.cli.remote import open_client

    console = Console(stderr=as_json, markup=False, emoji=False)
    with open_client(server) as client:
        made = submit_file(client, path, given, console)
        again = run_command(path, (dict(given), {}), resume=made.job_id) if here else None
        return show_to_the_end(client, made.job_id, console, as_json=as_json, here=here, again=again)


def show_to_the_end(
    client: Client, job_id: str, console: Console, *, as_json: bool, here: bool, again: str | None = None
) -> int:
    """Follow a job; Ctrl-C cancels it. `again` is the command that goes on from its checkpoint.

    Returns:
        The exit status.
    """
    from strop.cli.follow import EXIT_STATUS, follow, tell_end
    from strop.cli.remote import print_json

    # A shell starts what it puts in the background deaf to SIGINT; `strop run` here hears it, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ended = follow(client, job_id, console)
    except KeyboardInterrupt:
        text = t(
            "canceling: every finished step is kept; once more to leave that to the server",
            "正在取消：已完成的步都会保存；再按一次则交由服务收尾",
        )
        console.print(text, style="yellow", highlight=False, soft_wrap=True, markup=False)
        client.jobs.cancel(job_id)
        ended = client.jobs.wait(job_id)
    if as_json:
        print_json(_summary(client, ended, here=here))
    else:
        tell_end(client, ended, console, again=again)
    return EXIT_STATUS.get(ended.status, 0)


def _summary(client: Client, job: JobInfo, *, here: bool) -> dict[str, object]:
    """What a script wants to know, with the names of `strop run` where they mean the same."""
    from strop.cli.train import RESULT_EVENT
    from strop.rl.validation import MEAN_AT_1

    results = client.jobs.events(job.job_id, kind=RESULT_EVENT) if here else []
    if results:
        return {**json.loads(results[-1].data["summary"]), "status": job.status.value}
    curves = client.jobs.metrics(job.job_id)
    saved = client.jobs.checkpoints(job.job_id)
    return {
        "job_id": job.job_id,
        "status": job.status.value,
        "model": job.model,
        "algorithm": job.hyper_parameters.get("algorithm"),
        "seed": job.hyper_parameters.get("seed"),
        "steps": max((point.step for points in curves.values() for point in points), default=0),
        "validation": [{"step": point.step, "mean_at_1": point.value} for point in curves.get(MEAN_AT_1, [])],
        "checkpoint": saved[-1].checkpoint_id if saved else None,
        "published_as": job.finetuned_output if job.status is JobStatus.SUCCEEDED else None,
        "error": job.message,
    }
