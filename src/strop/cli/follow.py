"""A job's stream -> the live display of `strop run`, until the job has ended."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from rich.console import Console

from strop.cli.next_steps import program
from strop.cli.progress import SILENT_EVENTS, LiveProgress
from strop.cli.text import t
from strop.rl.validation import MEAN_AT_1
from strop.schema.job import PLANNED_EVENT, PREPARING_EVENT, JobStatus
from strop.schema.responses import EventInfo, JobInfo, PhaseProgress, Saved, StepMetrics, StreamItem

if TYPE_CHECKING:
    from strop.client import Client

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
