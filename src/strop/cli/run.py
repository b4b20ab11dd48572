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
    job: Annotated[Path, typer.Argument(help=t("The job, a YAML file.", "任务的 YAML 文件。"))],
    steps: Annotated[
        int | None, typer.Option(help=t("Stop after this many steps.", "训练多少步后停止。"), min=1)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help=t("Seed of data order and sampling.", "数据顺序与采样的种子。"))
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help=t(
                "Override a key of the file, e.g. learning_rate=1e-5. Repeatable.",
                "覆盖文件中的键，例如 learning_rate=1e-5；可多次使用。",
            ),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=named_folder,
            metavar="PATH",
            help=t("Folder for checkpoints.", "检查点的目录。") + " [STROP_HOME/jobs/ID]",
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help=t(
                "Resume from a run's folder, a checkpoint's folder or a job's id; auto: from --out if it holds "
                "checkpoints, else start.",
                "从任务目录、检查点目录或任务 id 继续；auto：若 --out 中有检查点则继续，否则从头开始。",
            )
        ),
    ] = None,
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes",
            help=t(
                "With --resume: continue although functions or validation rows have changed.",
                "与 --resume 同用：即使函数或验证数据已改变也继续。",
            ),
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help=t(
                "Check the file, its rows and its functions, print each value and where it comes from, stop.",
                "检查文件、数据与函数，打印每个值及其来源后停止。",
            ),
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help=t("Print the result as JSON on stdout.", "以 JSON 在标准输出打印结果。")),
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="STROP_URL",
            show_envvar=False,
            help=t(
                "Train on this server; STROP_URL, else the one that runs here, else in this command. The server's "
                "key is STROP_API_KEY.",
                "在此服务上训练；默认取 STROP_URL 或本机运行的服务，都没有则在本命令内训练。密钥取 STROP_API_KEY。",
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
        text = t("has no effect without --resume", "未给出 --resume 时无效")
        problem = Problem(place="--accept-changes", message=text, fix=t("leave it out", "请去掉"))
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
    where = folder or t("the new job's own folder", "新任务自己的目录")
    text = t(
        f"resumes from {resumed.checkpoint}; its checkpoints go to {where}",
        f"从 {resumed.checkpoint} 继续；检查点写入 {where}",
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
        f"already finished: all {ended.steps} steps are in {ended.checkpoint}",
        f"已经完成：全部 {ended.steps} 步都在 {ended.checkpoint}",
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
            message=t("is a folder of this machine, not of the server", "是本机目录，与服务无关"),
            fix=t(
                "leave it out; to resume a paused job: strop jobs resume ID",
                "请去掉；暂停的任务用 strop jobs resume ID 继续",
            ),
        )
        for name, value in given.items()
        if value is not None
    ]
    if problems:
        raise ConfigError(t("--server or STROP_URL", "--server 或 STROP_URL"), problems)


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
