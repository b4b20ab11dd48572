"""`strop run job.yaml`: train here and now, until the end or Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from strop.cli.memory import use_huge_pages
from strop.cli.text import t
from strop.errors import ConfigError, Problem
from strop.schema.job import JobStatus

if TYPE_CHECKING:
    from strop.cli.resume import Resumed
    from strop.cli.session import Session
    from strop.pipeline.loop import RunResult
    from strop.schema.config import JobConfig

EXIT_CANCELED = 130
"""As a shell reports a program ended by Ctrl-C."""


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
        typer.Option(help=t("Folder for checkpoints.", "检查点的目录。") + " [STROP_HOME/jobs/ID]"),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help=t(
                "Go on from a run's folder, a checkpoint's folder or a job's id; auto: from --out if there is "
                "anything, else begin.",
                "从任务目录、检查点目录或任务 id 继续；auto：若 --out 中有检查点则继续，否则从头开始。",
            )
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help=t("Check the file, print what would run, stop.", "只检查文件并打印将要运行的配置。"),
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
            help=t(
                "Train on this server instead of here; its key is STROP_API_KEY.",
                "改在此服务上训练；密钥取 STROP_API_KEY。",
            ),
        ),
    ] = None,
) -> None:
    """"""
    from strop.cli.resume import find_resumed, finished_result
    from strop.pipeline.config import describe, load_job

    if server is not None and not dry_run:
        from strop.cli.submitting import run_there

        refuse_local(out=out, resume=resume)
        given = [
            *(settings or []),
            *(
                f"{name}={value}"
                for name, value in (("max_steps", steps), ("seed", seed))
                if value is not None
            ),
        ]
        raise typer.Exit(run_there(server, job, given, as_json=as_json))
    if not dry_run:
        use_huge_pages()
    config = load_job(job, overrides(settings or [], max_steps=steps, seed=seed))
    if dry_run:
        print(json.dumps(describe(config), indent=2, ensure_ascii=False))
        return
    console = Console(stderr=as_json)
    resumed = find_resumed(resume, out) if resume is not None else None
    ended = finished_result(config, resumed) if resumed is not None else None
    if resumed is not None and ended is not None:
        result, job_id, published_as = ended, resumed.job_id, None
        console.print(
            t(
                f"already finished: all {ended.steps} steps are in {ended.checkpoint}",
                f"已经完成：全部 {ended.steps} 步都在 {ended.checkpoint}",
            ),
            style="yellow",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
    else:
        result, session = train_here(config, console, out=out, resumed=resumed)
        job_id, published_as = session.job_id, session.published_as
    if as_json:
        print(json.dumps(summary(config, job_id, result, published_as=published_as), indent=2))
    else:
        report(console, job_id, result, published_as=published_as)
    if result.status is JobStatus.CANCELED:
        raise typer.Exit(EXIT_CANCELED)


run.__doc__ = t(
    "Train the job of a YAML file on this machine. Ctrl-C ends it with a checkpoint; a second one without.",
    "在本机训练 YAML 文件描述的任务。按 Ctrl-C 会保存检查点后结束；再按一次则不保存。",
)


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
                "leave it out; `strop jobs resume` goes on with a job",
                "请去掉；用 `strop jobs resume` 继续任务",
            ),
        )
        for name, value in given.items()
        if value is not None
    ]
    if problems:
        raise ConfigError("--server", problems)


def overrides(settings: list[str], **named: object) -> dict[str, object]:
    """`--set` texts and options that were given -> overrides for `load_job`.

    Raises:
        ConfigError: a text without `=`.
    """
    given: dict[str, object] = {name: value for name, value in named.items() if value is not None}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError(
                "--set",
                [
                    Problem(
                        place="--set", message=f"{text!r} is not KEY=VALUE", fix="e.g. --set batch_size=16"
                    )
                ],
            )
        given[key] = value
    return given


Then = Callable[["Session", "RunResult"], Awaitable[None]]


def train_here(
    config: JobConfig,
    console: Console,
    *,
    out: Path | None = None,
    resumed: Resumed | None = None,
    anew: bool = False,
    then: Then | None = None,
) -> tuple[RunResult, Session]:
    """Open a session, train in it with live progress, and let `then` use it before it closes.

    With `anew` the checkpoints of an earlier run in `out` are removed.
    """
    from strop.cli.progress import LiveProgress
    from strop.cli.session import open_session
    from strop.pipeline.loop import train
    from strop.pipeline.stop import StopFlag

    async def work() -> tuple[RunResult, Session]:
        stop = StopFlag()
        live = LiveProgress(console)
        async with open_session(
            config, out=out, resumed=resumed, anew=anew, watchers=[live], say=live.say
        ) as session:
            listen_to_interrupts(stop.set, console)
            live.total_steps = session.total_steps
            with live:
                result = await train(
                    session.config,
                    session.machines,
                    session.training,
                    session.validation,
                    job_id=session.job_id,
                    folder=session.folder,
                    stop=stop,
                    resume_from=resumed.checkpoint if resumed is not None else None,
                )
            session = replace(session, published_as=publish(session, result))
            if then is not None and result.status is JobStatus.SUCCEEDED:
                await then(session, result)
        return result, session

    return asyncio.run(work())


def publish(session: Session, result: RunResult) -> str | None:
    """A finished run's last checkpoint becomes a model with a name. Returns the name.

    The name is `tuned_model_name`, else the job's id; where it stands for other weights already, the next
    `NAME-v2`, `NAME-v3` ... that is free.
    """
    from strop.policy.checkpoint import read_manifest
    from strop.schema.job import Checkpoint
    from strop.store.checkpoints import checkpoint_id
    from strop.store.jobs import name_output
    from strop.store.published import publish_checkpoint

    if result.status is not JobStatus.SUCCEEDED or result.checkpoint is None:
        return None
    manifest = read_manifest(result.checkpoint)
    checkpoint = Checkpoint(
        checkpoint_id=checkpoint_id(session.job_id, manifest.step),
        job_id=session.job_id,
        step=manifest.step,
        folder=result.checkpoint,
        policy_version=manifest.policy_version,
        validation=dict(result.validations).get(manifest.step),
        published=True,
        created_at=datetime.now(UTC),
    )
    session.store.flush()  # the hashes of the inputs are read back
    wanted = session.config.tuned_model_name or session.job_id
    model = publish_checkpoint(session.database, checkpoint, wanted, next_free=True)
    if model.name != wanted:
        with session.database.write() as writing:
            name_output(writing, session.job_id, model.name)
    session.machines.recorder.event(
        "published",
        t(f"published as {model.name}", f"已发布为 {model.name}"),
        step=result.steps,
        data={"name": model.name},
    )
    return model.name


def listen_to_interrupts(stop: Callable[[], None], console: Console) -> None:
    """The first Ctrl-C (or SIGTERM) asks the run to end in order, the second cancels what it is doing.

    An optimizer update works in a thread and cannot be cut; it is waited for.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    asked = False

    def interrupted() -> None:
        nonlocal asked
        if asked and task is not None:
            task.cancel()
            return
        asked = True
        stop()
        console.print(
            t(
                "ending after the current phase, with a checkpoint; once more to end without one",
                "当前阶段结束后保存检查点并退出；再按一次则不保存",
            ),
            style="yellow",
        )

    if sys.platform != "win32":
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupted)


def summary(
    config: JobConfig, job_id: str, result: RunResult, *, published_as: str | None
) -> dict[str, object]:
    """What a script wants to know of a finished run."""
    hyper = config.hyper_parameters
    return {
        "job_id": job_id,
        "status": result.status.value,
        "model": config.model.name,
        "algorithm": hyper.algorithm.value,
        "seed": hyper.seed,
        "steps": result.steps,
        "validation": [{"step": step, "mean_at_1": value} for step, value in result.validations],
        "tokens_sampled": result.sampled_tokens,
        "tokens_trained": result.trained_tokens,
        "checkpoint": str(result.checkpoint) if result.checkpoint else None,
        "published_as": published_as,
    }


def report(console: Console, job_id: str, result: RunResult, *, published_as: str | None) -> None:
    """Tell a person how it ended and what to do next."""
    console.print(f"{job_id}   {result.status.value}   " + t(f"{result.steps} steps", f"{result.steps} 步"))
    if result.checkpoint is not None:
        model = published_as or result.checkpoint
        console.print(f"strop chat {model}", highlight=False, soft_wrap=True, markup=False)
    if published_as is not None:
        console.print(f"strop serve {published_as}", highlight=False, soft_wrap=True, markup=False)
