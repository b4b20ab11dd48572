"""`strop run job.yaml`: train until the end or Ctrl-C, on the server that runs here or in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from strop.cli.interrupts import EXIT_CANCELED, leaving_at_once
from strop.cli.next_steps import RunCommand, after
from strop.cli.run_folder import named_folder
from strop.cli.text import t
from strop.errors import ConfigError, Problem
from strop.schema.job import JobStatus

if TYPE_CHECKING:
    from strop.cli.run_folder import Resumed
    from strop.config.job import JobConfig


def run(
    job: Annotated[Path, typer.Argument(help=t("The job, a YAML file."))],
    steps: Annotated[int | None, typer.Option(help=t("Stop after this many steps."), min=1)] = None,
    seed: Annotated[int | None, typer.Option(help=t("Seed of data order and sampling."))] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help=t("Override a key of the file, e.g. learning_rate=1e-5. Repeatable."),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=named_folder,
            metavar="PATH",
            help=t("Folder for checkpoints.") + " [STROP_HOME/jobs/ID]",
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help=t(
                "Resume from a run's folder, a checkpoint's folder or a job's id; auto: "
                "from --out if it holds checkpoints, else start."
            )
        ),
    ] = None,
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes",
            help=t("With --resume: continue although functions or validation rows have changed."),
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help=t(
                "Check the file, its rows and its functions, print each value and where it comes from, stop."
            ),
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help=t("Print the result as JSON on stdout.")),
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="STROP_URL",
            show_envvar=False,
            help=t(
                "Train on this server; STROP_URL, else the one that runs here, else in "
                "this command. The server's key is STROP_API_KEY."
            ),
        ),
    ] = None,
) -> None:
    """"""
    overrides, given_by = given(settings or [], steps=steps, seed=seed)
    command = RunCommand(
        job=job,
        overrides=overrides,
        given_by=given_by,
        out=out,
        resume=resume,
        accept_changes=accept_changes,
    )
    if accept_changes and resume is None:
        text = t("has no effect without --resume")
        problem = Problem(place="--accept-changes", message=text, fix=t("leave it out"))
        raise ConfigError("--accept-changes", [problem])
    console = Console(stderr=as_json, markup=False, emoji=False)
    if dry_run:
        _only_check(command, console, as_json=as_json)
        return
    if server is not None:
        from strop.cli.server_run import run_there

        refuse_local(out=out, resume=resume)
        raise typer.Exit(run_there(server, command, as_json=as_json))
    if resume is not None:
        from strop.cli.server_run import resume_there

        status = resume_there(resume, command, console, as_json=as_json)
        if status is not None:
            raise typer.Exit(status)
    with leaving_at_once():
        from strop.cli.checking import check_whole
        from strop.cli.server_run import place_of_run, place_text

        config = check_whole(job, overrides, given_by, load_functions=False)
        place = place_of_run(config, out=out, resume=resume)
        if (text := place_text(place)) is not None:
            console.print(text, style="dim", highlight=False, soft_wrap=True, markup=False)
    if place.url is not None:
        from strop.cli.server_run import run_there

        raise typer.Exit(run_there(place.url, command, as_json=as_json, here=True))
    _run_here(config, command, console, as_json=as_json)


def _only_check(command: RunCommand, console: Console, *, as_json: bool) -> None:
    """`--dry-run`: everything that the run would look at before it starts, and nothing that it would change."""
    from strop.cli.checking import check_whole, print_resolved, say_ok
    from strop.data.reading import RowFiles

    rows = RowFiles()
    config = check_whole(command.job, command.overrides, command.given_by, load_functions=True, rows=rows)
    resumed = _resumed(command)
    print_resolved(config, as_json=as_json)
    if finished(config, resumed, console, accept_changes=command.accept_changes) is None and resumed:
        _say_resumed(resumed, command.out or resumed.folder, console)
    if not as_json:
        say_ok(config, command, rows)


def _run_here(config: JobConfig, command: RunCommand, console: Console, *, as_json: bool) -> None:
    with leaving_at_once():
        resumed = _resumed(command)
        told = finished(config, resumed, console, accept_changes=command.accept_changes)
    told = told or _train(config, command, resumed, console)
    if as_json:
        print(json.dumps(told, indent=2))
    for line in after(told, command):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    if told["status"] == JobStatus.CANCELED.value:
        raise typer.Exit(EXIT_CANCELED)


def _train(
    config: JobConfig, command: RunCommand, resumed: Resumed | None, console: Console
) -> dict[str, Any]:
    from strop.cli.local_run import checked_folder, train_locally

    folder = checked_folder(command.out, resumed)
    if resumed is not None:
        _say_resumed(resumed, folder, console)
    return train_locally(config, command, folder, console, resumed=resumed)


def _resumed(command: RunCommand) -> Resumed | None:
    from strop.cli.run_folder import find_resumed

    return find_resumed(command.resume, command.out) if command.resume is not None else None


def _say_resumed(resumed: Resumed, folder: Path | None, console: Console) -> None:
    where = folder or t("the new job's own folder")
    text = t(
        "resumes from {checkpoint}; its checkpoints go to {where}", checkpoint=resumed.checkpoint, where=where
    )
    console.print(text, style="dim", highlight=False, soft_wrap=True, markup=False)


def finished(
    config: JobConfig, resumed: Resumed | None, console: Console, *, accept_changes: bool = False
) -> dict[str, Any] | None:
    """The summary of the run to resume where it has nothing left to do.

    Raises:
        CheckpointError: it is another job's.
    """
    if resumed is None:
        return None
    from strop.cli.run_folder import finished_result
    from strop.cli.training_here import summary

    ended = finished_result(config, resumed, accept_changes=accept_changes)
    if ended is None:
        return None
    text = t(
        "already finished: all {steps} steps are in {checkpoint}",
        steps=ended.steps,
        checkpoint=ended.checkpoint,
    )
    console.print(text, style="yellow", highlight=False, soft_wrap=True, markup=False)
    return summary(config, resumed.job_id, ended, published_as=None)


def refuse_local(**given: str | Path | None) -> None:
    """Options that name folders of this machine mean nothing to a server.

    Raises:
        ConfigError: one was given.
    """
    problems = [
        Problem(
            place=f"--{name}",
            message=t("is a folder of this machine, not of the server"),
            fix=t("leave it out; to resume a paused job: strop jobs resume ID"),
        )
        for name, value in given.items()
        if value is not None
    ]
    if problems:
        raise ConfigError(t("--server or STROP_URL"), problems)


def given(
    settings: list[str], *, steps: int | None = None, seed: int | None = None
) -> tuple[dict[str, object], dict[str, str]]:
    """What the command line says of a job: overrides for `load_job`, and who gave each.

    Raises:
        ConfigError: a text without `=`, or a key that is set twice.
    """
    return overrides(settings, {"--steps": ("max_steps", steps), "--seed": ("seed", seed)})


def overrides(
    settings: list[str], options: Mapping[str, tuple[str, object]]
) -> tuple[dict[str, object], dict[str, str]]:
    """`--set` texts and options with their keys -> overrides for `load_job`, and who gave each.

    Raises:
        ConfigError: a text without `=`, or a key that is set twice.
    """
    values = {key: value for key, value in options.values() if value is not None}
    given_by = {key: option for option, (key, value) in options.items() if value is not None}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise _refused(f"{text!r} is not KEY=VALUE", "e.g. --set batch_size=16")
        if key in values:
            raise _refused(f"{key} is set twice, also by {given_by[key]}", "keep one of them")
        values[key], given_by[key] = value, "--set"
    return values, given_by


def _refused(message: str, fix: str) -> ConfigError:
    return ConfigError("--set", [Problem(place="--set", message=message, fix=fix)])
