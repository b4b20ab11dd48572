"""A job's stream -> the live display of `strop run`, until the job has ended."""

from __future__ import annotations

from collections.abc import Container
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from strop.cli.next_steps import program
from strop.cli.text import t
from strop.rl.validation import MEAN_AT_1
from strop.schema.job import PLANNED_EVENT, PREPARING_EVENT, JobStatus
from strop.schema.responses import EventInfo, JobInfo, PhaseProgress, Saved, StepMetrics, StreamItem

if TYPE_CHECKING:
    from strop.cli.progress import LiveProgress
    from strop.client import Client

EXIT_STATUS = {JobStatus.SUCCEEDED: 0, JobStatus.FAILED: 1, JobStatus.CANCELED: 130}
"""By how a job ended; as `strop run` ends."""

REFUSED_EVENT = "refused"
"""The job could not begin: its file or its rows are wrong."""

RESULT_EVENT = "result"
"""The last event of a run: its data is what `strop run --json` prints."""

_QUIET = frozenset({PLANNED_EVENT, RESULT_EVENT, REFUSED_EVENT, "inputs", "cancel_asked"})


Note = tuple[str, int]
"""An event's words, and the second since 1970 at which it was noted."""


class Following:
    """Tells each thing once: metrics of a step come again, grown."""

    def __init__(
        self, live: LiveProgress, console: Console, *, own: bool = False, told: Container[Note] = ()
    ) -> None:
        self._live = live
        self._console = console
        self._own = own
        self._told_otherwise = told
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
                note = (item.message, int(item.time.timestamp()))
                total = item.data.get("total_steps")
                if item.kind == PLANNED_EVENT and isinstance(total, int):
                    self._live.plan(total)
                if item.kind == PREPARING_EVENT:
                    self._live.say(item.message)
                elif item.kind not in _QUIET and note not in self._told_otherwise:
                    self._live.event(item.kind, item.message, step=item.step, data=item.data)
            case Saved() if self._own:
                self._live.checkpoint(
                    item.step,
                    Path(item.folder),
                    policy_version=item.policy_version,
                    validation=item.validation,
                    published=item.published,
                    best=item.best,
                )
            case PhaseProgress():
                self._live.progress(item.step, item.phase, item.done, item.total)
            case Saved():
                pass
            case JobInfo():
                if not self._own and (self.job is None or self.job.status is not item.status):
                    self._console.print(f"{item.job_id}   {item.status.value}", style="dim", highlight=False)
                self.job = item


class Alarms:
    """Notes of a trainer that could not come by its job's stream, shown at once; `told` has them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.told: set[Note] = set()

    def heard(self, en: str, zh: str, at: int) -> None:
        from strop.cli.progress import tell_note

        message = t(en, zh)
        self.told.add((message, at))
        tell_note(self._console, message)


def follow(
    client: Client, job_id: str, console: Console, *, own: bool = False, told: Container[Note] = ()
) -> JobInfo:
    """Show a job until it has ended. Returns it as it is then. One that is this command's `own` is shown with its
    checkpoints, which lie on this machine, and without its statuses. Events that were `told` are left out.

    Raises:
        StropError: there is no such job, or the server is gone for good.
        KeyboardInterrupt: whoever watches has seen enough; the job goes on.
    """
    from strop.cli.progress import LiveProgress

    live = LiveProgress(console)
    following = Following(live, console, own=own, told=told)
    with live, closing(client.jobs.stream(job_id, progress=True)) as items:
        for item in items:
            following.take(item)
    return client.jobs.get(job_id)


def tell_end(client: Client, job: JobInfo, console: Console, *, again: str | None = None) -> None:
    """How it ended and what to do next; `again` is the command that goes on from its checkpoint here."""

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    if job.status is JobStatus.SUCCEEDED:
        say(f"{program()} deployments create {job.finetuned_output}")
    elif job.status is JobStatus.FAILED:
        console.print(job.message or t("no reason was given", "没有给出原因"), style="red", markup=False)
        say(f"{program()} jobs logs {job.job_id}")
    elif job.status is JobStatus.CANCELED:
        saved = client.jobs.checkpoints(job.job_id)
        if not saved:
            say(t("no step was finished, so nothing was kept", "没有完成任何一步，因此没有保存检查点"))
            return
        where = t(f"checkpoint of step {saved[-1].step}", f"第 {saved[-1].step} 步的检查点")
        say(f"{where}: {program()} models publish {job.job_id} NAME")
        if again is not None:
            say(t(f"go on:  {again}", f"继续:  {again}"))
