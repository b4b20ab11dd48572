"""`strop jobs`: submit, list, show, follow, cancel, pause, resume and delete the jobs of a server."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from strop.cli.job_views import ExportFormat, MetricNames, export_metrics
from strop.cli.remote import (
    AsJson,
    JobArgument,
    PageOption,
    ServerOption,
    SizeOption,
    cell,
    looking,
    open_client,
    plain,
    print_json,
    print_table,
    show_list,
    show_one,
)
from strop.cli.text import t
from strop.schema.function import TaskStatus
from strop.schema.job import JobStatus

if TYPE_CHECKING:
    from strop.client import Client
    from strop.schema.responses import JobInfo, TrajectoryInfo

app = typer.Typer(no_args_is_help=True)

_FOLLOW_S = 1.0


@app.command(
    "submit",
    help=t("Check a job file, send its functions and rows, and submit it. Prints the job's id."),
)
def submit(
    job: Annotated[Path, typer.Argument(help=t("The job, a YAML file."))],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help=t("Override a key of the file. Repeatable."),
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help=t("Follow it to its end."))] = False,
    server: ServerOption = None,
    as_json: AsJson = False,
) -> None:
    from strop.cli.run import overrides
    from strop.cli.server_run import EXIT_STATUS, submit_file

    console = Console(stderr=True, markup=False, emoji=False)
    with open_client(server) as client:
        made = submit_file(client, job, overrides(settings or [], {})[0], console)
        if wait:
            made = _followed(client, made.job_id, console)
    if as_json:
        print_json(plain(made))
    elif not wait:
        print(made.job_id)
    if wait:
        raise typer.Exit(EXIT_STATUS[made.status])


@app.command("list", help=t("List jobs, newest first."))
def list_(
    status: Annotated[JobStatus | None, typer.Option(help=t("Only these."))] = None,
    page: PageOption = 1,
    size: SizeOption = 10,
    server: ServerOption = None,
    as_json: AsJson = False,
) -> None:
    with looking(server) as client:
        listed = client.jobs.list(page_no=page, page_size=size, status=status)
    columns = [
        (t("job"), lambda job: job.job_id),
        (t("name"), lambda job: job.job_name),
        (t("status"), lambda job: job.status.value),
        (t("model"), lambda job: job.model),
        (t("created"), lambda job: job.create_time),
        (t("by"), lambda job: job.creator),
    ]
    show_list(listed, columns, as_json=as_json, total=listed.total)


@app.command(
    "get",
    help=t("Show one job. Exit status 1 if it FAILED."),
)
def get(job: JobArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    with looking(server) as client:
        found = client.jobs.get(job)
    show_one(found, as_json=as_json)
    if found.status is JobStatus.FAILED:
        raise typer.Exit(1)


@app.command(
    "wait",
    help=t(
        "Follow a job to its end. Exit status: 0 SUCCEEDED, 1 FAILED, 130 CANCELED or "
        "Ctrl-C (the job continues)."
    ),
)
def wait(job: JobArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    from strop.cli.server_run import EXIT_STATUS

    with looking(server) as client:
        ended = _followed(client, job, Console(stderr=as_json, markup=False, emoji=False))
    if as_json:
        print_json(plain(ended))
    raise typer.Exit(EXIT_STATUS[ended.status])


def _followed(client: Client, job_id: str, console: Console) -> JobInfo:
    from strop.cli.server_run import follow, tell_end

    try:
        ended = follow(client, job_id, console)
    except KeyboardInterrupt:
        console.print(t("{job_id} keeps running", job_id=job_id), style="yellow", highlight=False)
        raise
    tell_end(client, ended, console)
    return ended


@app.command("logs", help=t("Print what a job's processes wrote."))
def logs(
    job: JobArgument,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help=t("The last so many."))] = 100,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help=t("Go on until the job has ended.")),
    ] = False,
    server: ServerOption = None,
) -> None:
    with looking(server) as client:
        found, total = client.jobs.tail(job, lines=lines)
        _write(found)
        while follow:
            ended = client.jobs.get(job).status.final
            news = client.jobs.logs(job, offset=total + 1, lines=100_000)
            _write(news)
            total += len(news)
            if ended:
                return
            time.sleep(_FOLLOW_S)


@app.command(
    "metrics",
    help=t("Print metrics: the curves of the NAMEs, else the last value of each."),
)
def metrics(
    job: JobArgument,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help=t("e.g. critic/rewards/mean")),
    ] = None,
    format: Annotated[
        ExportFormat | None,
        typer.Option(
            "--format",
            help=t("Write every value to a file or to standard output instead: a row a metric and step."),
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help=t("The file for --format."))] = None,
    naming: Annotated[
        MetricNames,
        typer.Option(
            "--names",
            help=t("By whose names; Ark has fewer."),
        ),
    ] = MetricNames.STROP,
    server: ServerOption = None,
    as_json: AsJson = False,
) -> None:
    if out is not None and format is None:
        raise typer.BadParameter(t("it needs --format csv or parquet"), param_hint="--out")
    with looking(server) as client:
        curves = client.jobs.metrics(job, names or None, naming=naming.value)
    unknown = sorted(set(names or []) - set(curves))
    if format is not None:
        export_metrics(job, curves, format, out)
        if unknown:
            print(f"{t('nothing was recorded as')} {', '.join(unknown)}", file=sys.stderr)
            raise typer.Exit(1)
        return
    if as_json:
        print_json({name: [[point.step, point.value] for point in points] for name, points in curves.items()})
    elif names:
        steps = sorted({point.step for points in curves.values() for point in points})
        values = {name: {point.step: point.value for point in points} for name, points in curves.items()}
        table = Table(t("step"), *curves, box=None, pad_edge=False)
        for step in steps:
            table.add_row(str(step), *(cell(curve.get(step)) for curve in values.values()))
        print_table(table)
    else:
        table = Table(t("metric"), t("step"), t("value"), box=None, pad_edge=False)
        for name, points in sorted(curves.items()):
            table.add_row(name, str(points[-1].step), cell(points[-1].value))
        print_table(table)
    if unknown:
        what = t("nothing was recorded as")
        print(f"{what} {', '.join(unknown)}", file=sys.stderr)
        raise typer.Exit(1)


@app.command(
    "trajectories",
    help=t("List rollouts, or show one with its turns."),
)
def trajectories(
    job: JobArgument,
    rollout: Annotated[str | None, typer.Argument(metavar="[ROLLOUT]", help=t("Show this one."))] = None,
    step: Annotated[int | None, typer.Option(min=0, help=t("Of this step."))] = None,
    split: Annotated[str | None, typer.Option(help="train, validation")] = None,
    status: Annotated[TaskStatus | None, typer.Option(help=t("Only these."))] = None,
    limit: Annotated[int, typer.Option(min=1, help=t("At most so many."))] = 20,
    server: ServerOption = None,
    as_json: AsJson = False,
) -> None:
    with looking(server) as client:
        if rollout is not None:
            one = client.jobs.trajectory(job, rollout, step=step)
            if as_json:
                print_json(plain(one))
            else:
                _show_trajectory(one)
            return
        found = client.jobs.trajectories(job, step=step, split=split, status=status, limit=limit)
    columns = [
        ("rollout", lambda one: one.rollout_id),
        (t("step"), lambda one: one.step),
        (t("split"), lambda one: one.split),
        (t("sample"), lambda one: one.sample_id),
        (t("status"), lambda one: one.status),
        (t("reward"), lambda one: one.reward),
        (t("turns"), lambda one: one.num_turns),
        (t("tokens"), lambda one: one.num_sampled_tokens),
        (t("error"), lambda one: (one.error or "")[:60]),
    ]
    show_list(found, columns, as_json=as_json)


def _show_trajectory(one: TrajectoryInfo) -> None:
    console = Console(markup=False, emoji=False)
    head = f"{one.rollout_id}   {one.status}   {t('reward')} {cell(one.reward)}   {one.num_turns} / {one.num_sampled_tokens} tok"
    console.print(head, highlight=False, markup=False)
    for message in one.messages:
        console.print(
            f"  {message.get('role', '?'):<10} {message.get('content')}", highlight=False, markup=False
        )
        for call in message.get("tool_calls") or []:
            console.print(f"  {'':<10} {call}", highlight=False, markup=False)
    for name, value in {**one.reward_parts, "ground_truth": one.ground_truth}.items():
        console.print(f"  {name:<20} {value}", highlight=False, markup=False)
    if one.error:
        console.print(one.error, style="red", markup=False)


@app.command(
    "diagnose",
    help=t(
        "What goes wrong in a job, what shows it, why, and what to do. Exit status 1 while an alarm holds."
    ),
)
def diagnose(job: JobArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    from strop.cli.job_views import show_findings

    with looking(server) as client:
        found = client.jobs.diagnosis(job)
    if as_json:
        print_json([plain(one) for one in found])
    else:
        show_findings(found, Console(markup=False, emoji=False))
    if any(one.severity == "alarm" and one.ended_step is None for one in found):
        raise typer.Exit(1)


@app.command(
    "watch",
    help=t(
        "Look on while a job trains: progress, curves, findings, last errors. Ctrl-C "
        "ends the looking on only."
    ),
)
def watch(job: JobArgument, server: ServerOption = None) -> None:
    from strop.cli.job_views import watch_job
    from strop.cli.server_run import EXIT_STATUS

    with looking(server) as client:
        ended = watch_job(client, job, Console(markup=False, emoji=False))
    raise typer.Exit(EXIT_STATUS.get(ended.status, 0))


@app.command("spans", help=t("Show what ran inside a rollout, as a tree."))
def spans(
    job: JobArgument,
    rollout: Annotated[str, typer.Argument(metavar="ROLLOUT")],
    server: ServerOption = None,
    as_json: AsJson = False,
) -> None:
    with looking(server) as client:
        found = client.jobs.span_tree(job, rollout)
    if as_json:
        print_json([plain(one) for one in found])
        return
    console = Console(markup=False, emoji=False)
    for one in found:
        line = f"{one.offset_ms:>9.0f} ms {one.duration_ms:>9.0f} ms  {'  ' * one.depth}{one.name}"
        style = "red" if one.status == "error" else None
        console.print(
            f"{line}   {one.message or one.preview[:60]}",
            style=style,
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


@app.command("checkpoints", help=t("List the checkpoints of a job."))
def checkpoints(job: JobArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    with looking(server) as client:
        found = client.jobs.checkpoints(job)
    columns = [
        (t("checkpoint"), lambda one: one.checkpoint_id),
        (t("step"), lambda one: one.step),
        (t("validation"), lambda one: one.validation),
        (t("best"), lambda one: one.best),
        (t("published"), lambda one: one.published),
    ]
    show_list(found, columns, as_json=as_json)


@app.command("events", help=t("Print what a person should know of a job."))
def events(job: JobArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    with looking(server) as client:
        found = client.jobs.events(job)
    columns = [
        (t("time"), lambda one: one.time),
        (t("kind"), lambda one: one.kind),
        (t("message"), lambda one: one.message),
    ]
    show_list(found, columns, as_json=as_json)


@app.command(
    "cancel",
    help=t("End a job; a running one saves a checkpoint first."),
)
def cancel(job: JobArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    with looking(server) as client:
        _changed(client.jobs.cancel(job), as_json)


@app.command(
    "pause",
    help=t("Let a job rest; a running one saves a checkpoint first."),
)
def pause(job: JobArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    with open_client(server) as client:
        _changed(client.jobs.pause(job), as_json)


@app.command("resume", help=t("Resume a paused job from its newest checkpoint."))
def resume(job: JobArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    with open_client(server) as client:
        _changed(client.jobs.resume(job), as_json)


@app.command(
    "delete",
    help=t("Delete an ended job with its checkpoints; published models stay."),
)
def delete(job: JobArgument, server: ServerOption = None) -> None:
    with looking(server) as client:
        client.jobs.delete(job)
    print(t("deleted {job}", job=job))


def _changed(job: JobInfo, as_json: bool) -> None:
    if as_json:
        print_json(plain(job))
    else:
        print(f"{job.job_id}   {job.status.value}")


def _write(lines: list[str]) -> None:
    for line in lines:
        print(line)
    sys.stdout.flush()
