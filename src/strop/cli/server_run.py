"""`strop run` and `strop jobs submit` on a server: choose it, submit the job file, show the job to its end."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from strop.cli.next_steps import RunCommand, program
from strop.cli.progress import SILENT_EVENTS, LiveProgress
from strop.cli.text import t
from strop.errors import AccessError, ConfigError, MissingError, Problem, StropError
from strop.rl.validation import MEAN_AT_1
from strop.schema.job import PLANNED_EVENT, PREPARING_EVENT, JobStatus
from strop.schema.responses import EventInfo, JobInfo, PhaseProgress, Saved, StepMetrics, StreamItem
from strop.schema.watching import is_loopback, is_server

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from strop.client import Client
    from strop.config.job import JobConfig
    from strop.schema.job import Job
    from strop.schema.responses import JobInfo


EXIT_STATUS = {JobStatus.SUCCEEDED: 0, JobStatus.FAILED: 1, JobStatus.CANCELED: 130}
"""By how a job ended; as `strop run` ends."""


class Following:
    """Tells each thing once: metrics of a step come again, grown."""

    def __init__(self, live: LiveProgress, console: Console) -> None:
        self._live = live
        self._console = console
        self._told: dict[int, set[str]] = {}
        self.job: JobInfo | None = None

    def take(self, item: StreamItem) -> None:
        match item:
            case StepMetrics():
                told = self._told.setdefault(item.step, set())
                news = {name: value for name, value in item.metrics.items() if name not in told}
                told.update(news)
                # A step and its validation may come at once; the step is told first.
                held_out = {name: news.pop(name) for name in (MEAN_AT_1,) if name in news}
                for values in (news, held_out):
                    if values:
                        self._live.metrics(item.step, values)
            case EventInfo():
                total = item.data.get("total_steps")
                if item.kind == PLANNED_EVENT and isinstance(total, int):
                    self._live.plan(total)
                if item.kind == PREPARING_EVENT:
                    self._live.say(item.message)
                elif item.kind not in SILENT_EVENTS:
                    self._live.note(item.message)
            case PhaseProgress():
                self._live.progress(item.step, item.phase, item.done, item.total)
            case Saved():
                pass
            case JobInfo():
                if self.job is None or self.job.status is not item.status:
                    self._console.print(f"{item.job_id}   {item.status.value}", style="dim", highlight=False)
                self.job = item


def follow(client: Client, job_id: str, console: Console) -> JobInfo:
    """Show a job until it has ended. Returns it as it is then.

    Raises:
        StropError: there is no such job, or the server is gone for good.
        KeyboardInterrupt: whoever watches has seen enough; the job keeps running.
    """
    live = LiveProgress(console)
    following = Following(live, console)
    with live, closing(client.jobs.stream(job_id, progress=True)) as items:
        for item in items:
            following.take(item)
    return client.jobs.get(job_id)


def tell_end(client: Client, job: JobInfo, console: Console, *, again: str | None = None) -> None:
    """How it ended and what to do next; `again` is the command that resumes it here."""

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    if job.status is JobStatus.SUCCEEDED:
        say(f"{program()} deployments create {job.finetuned_output}")
    elif job.status is JobStatus.FAILED:
        console.print(job.message or t("no reason was given"), style="red", markup=False)
        say(f"{program()} jobs logs {job.job_id}")
    elif job.status is JobStatus.CANCELED:
        saved = client.jobs.checkpoints(job.job_id)
        if not saved:
            say(t("no step was finished, so nothing was kept"))
            return
        where = t("checkpoint of step {step}", step=saved[-1].step)
        say(f"{where}: {program()} models publish {job.job_id} NAME")
        if again is not None:
            say(t("resume:  {again}", again=again))


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


def run_there(server: str, command: RunCommand, *, as_json: bool, here: bool = False) -> int:
    """Submit, show it as it trains, tell how it ended. Ctrl-C cancels the job; a second one leaves that to the
    server, as any other end of this process does. A server that is `here` has folders that mean something to
    its client.

    Returns:
        The exit status: 0 SUCCEEDED, 1 FAILED, 130 CANCELED.
    """
    from strop.cli.remote import open_client

    console = Console(stderr=as_json, markup=False, emoji=False)
    with open_client(server) as client:
        made = submit_file(client, command.job, command.overrides, console)
        again = command.text(resume=made.job_id) if here else None
        return show_to_the_end(client, made.job_id, console, as_json=as_json, here=here, again=again)


def show_to_the_end(
    client: Client, job_id: str, console: Console, *, as_json: bool, here: bool, again: str | None = None
) -> int:
    """Follow a job; Ctrl-C cancels it. `again` is the command that resumes it.

    Returns:
        The exit status.
    """
    from strop.cli.remote import print_json

    # A shell starts what it puts in the background deaf to SIGINT; `strop run` here hears it, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ended = follow(client, job_id, console)
    except KeyboardInterrupt:
        text = t("canceling: every finished step is kept; once more to leave that to the server")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """`url` is the server that runs in this home and takes the job; None is this process. `why` is said where a
    server runs and is not used.
    """

    url: str | None = None
    why: str | None = None


def place_of_run(config: JobConfig, *, out: Path | None, resume: str | None) -> RunPlace:
    """The server of this home where one answers, opens to this home's key and can do what the job asks; else
    this process.
    """
    from strop.client.place import running_server

    url = running_server()
    if url is None:
        return RunPlace()
    if out is not None:
        why = t("--out names a folder of this command's own")
        return RunPlace(why=why)
    if resume is not None:
        why = t("--resume starts from a checkpoint on this machine")
        return RunPlace(why=why)
    if any(one.tracking_uri is not None and not is_server(one.tracking_uri) for one in config.trackers):
        why = t("its tracking_uri must start with http:// or https://")
        return RunPlace(why=why)
    if any(one.host is not None and not is_loopback(one.host) for one in config.trackers):
        why = t("a tracker's host opens a port of this machine")
        return RunPlace(why=why)
    why = _obstacle(url, config)
    return RunPlace(url=url) if why is None else RunPlace(why=why)


def place_text(place: RunPlace) -> str | None:
    """What a person should know of it; None where there is nothing to know."""
    if place.url is not None:
        return t(
            "trains on the server that runs here, {url}; --out FOLDER trains in this command", url=place.url
        )
    if place.why is not None:
        return t("trains in this command, not on the server that runs here: {why}", why=place.why)
    return None


def _obstacle(url: str, config: JobConfig) -> str | None:
    """Why that server cannot take the job."""
    from strop.client import Client

    try:
        with Client(url) as client:
            for name in filter(None, (config.model.name, config.training.teacher_model)):
                try:
                    client.models.get(name)
                except MissingError:
                    return t("it has no model {name!r}; strop models add NAME SOURCE gives it one", name=name)
    except AccessError as error:
        return error.message
    except StropError as error:
        return t("it does not answer ({message})", message=error.message)
    return None


def server_job(given: str) -> Job | None:
    """The job of that id in this home's store, where a server looks after it and no `strop run` does."""
    from strop.cli.run_folder import of_the_store
    from strop.store.jobs import get_job
    from strop.store.submissions import get_submission

    def read(session: Session) -> Job | None:
        of_a_server = get_submission(session, given).local is None
        return get_job(session, given) if of_a_server else None

    return of_the_store(read)


def resume_there(given: str, command: RunCommand, console: Console, *, as_json: bool) -> int | None:
    """Resume a paused job of a server, and show it to its end. Returns the exit status; None where the job is not
    a server's, or has ended there, so that this command resumes from its checkpoint.

    Raises:
        ConfigError: the job trains, or no server runs here, or options are given that the job cannot take.
    """
    from strop.client.place import running_server

    job = server_job(given)
    if job is None:
        return None
    url = running_server()
    if job.status is JobStatus.SUSPENDED and url is not None:
        _refuse_options(given, command)
        return _resume_on_server(url, given, console, as_json=as_json)
    if not job.status.final:
        raise _refused(*_why(given, job.status, here=url is not None))
    text = t(
        "{given} was trained by a server and is {value}: a new job resumes from its "
        "checkpoint, in this command",
        given=given,
        value=job.status.value,
    )
    console.print(text, style="dim", highlight=False, soft_wrap=True, markup=False)
    return None


def _resume_on_server(url: str, job_id: str, console: Console, *, as_json: bool) -> int:
    from strop.cli.remote import open_client

    text = t(
        "resumes on the server that runs here, {url}, as it was submitted; the job file is not reread",
        url=url,
    )
    console.print(text, style="dim", highlight=False, soft_wrap=True, markup=False)
    with open_client(url) as client:
        client.jobs.resume(job_id)
        return show_to_the_end(client, job_id, console, as_json=as_json, here=True)


def _why(job_id: str, status: JobStatus, *, here: bool) -> tuple[str, str]:
    if not here:
        return (
            t("{job_id} is {value} on a server, and none runs here", job_id=job_id, value=status.value),
            t(
                "start it: {program} up; then resume the paused job: {program} jobs resume {job_id}",
                program=program(),
                job_id=job_id,
            ),
        )
    return (
        t("{job_id} is {value} on the server", job_id=job_id, value=status.value),
        t("watch it: {program} jobs watch {job_id}", program=program(), job_id=job_id),
    )


def _refuse_options(given: str, command: RunCommand) -> None:
    options = [command.given_by.get(key, "--set") for key in command.overrides]
    options += ["--out"] * (command.out is not None) + ["--accept-changes"] * command.accept_changes
    if options:
        names = ", ".join(dict.fromkeys(options))
        raise _refused(
            t(
                "{given} resumes on its server as it was submitted: {names} would have no effect",
                given=given,
                names=names,
            ),
            t("leave it out"),
        )


def _refused(message: str, fix: str) -> ConfigError:
    return ConfigError("--resume", [Problem(place="--resume", message=message, fix=fix)])
