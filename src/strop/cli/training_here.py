"""A checked job -> trained in this process, published under its name and summed up.

`cli.train` puts these pieces together for `strop run`, `strop demo` and `strop train`; `train_here` alone is for
whoever trains from Python without a job of the store.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from strop.cli.interrupts import ending_text
from strop.locales import msg
from strop.schema.job import JobStatus

if TYPE_CHECKING:
    from strop.cli.offline_session import OfflineSession
    from strop.cli.run_folder import Resumed
    from strop.cli.session import Session
    from strop.config.job import JobConfig
    from strop.rl.trainer import RunResult


def train_here(
    config: JobConfig,
    console: Console,
    *,
    out: Path | None = None,
    resumed: Resumed | None = None,
) -> tuple[RunResult, Session | OfflineSession]:
    """Open a session and train in it, without a server, with live progress."""
    from strop.cli.progress import LiveProgress
    from strop.rl.stop import StopFlag

    opened, train = kind_of_run(config)

    async def work() -> tuple[RunResult, Session | OfflineSession]:
        stop = StopFlag()
        live = LiveProgress(console)
        async with opened(config, out=out, resumed=resumed, watchers=[live], say=live.say) as session:
            listen_to_interrupts(stop.set, console)
            live.total_steps = session.total_steps
            with live:
                result = await train(
                    session.config,
                    session.backends,
                    session.training,
                    session.validation,
                    job_id=session.job_id,
                    folder=session.folder,
                    stop=stop,
                    resume_from=resumed.checkpoint if resumed is not None else None,
                    code=session.code,
                )
            session = replace(session, published_as=publish(session, result))
        return result, session

    return asyncio.run(work())


def kind_of_run(config: JobConfig) -> tuple[Any, Any]:
    """The session a job is opened in and the flow that runs in it; both kinds are called alike."""
    if config.training_type.offline:
        from strop.cli.offline_session import open_offline_session
        from strop.rl.offline import train_offline

        return open_offline_session, train_offline
    from strop.cli.session import open_session
    from strop.rl.loop import train

    return open_session, train


def publish(session: Session | OfflineSession, result: RunResult) -> str | None:
    """A finished run's last checkpoint becomes a model with a name. Returns the name; None where there is
    nothing to publish, or what is through already is the run of another job.

    The name is `tuned_model_name`, else the job's id; where it stands for other weights already, the next
    `NAME-v2`, `NAME-v3` ... that is free.
    """
    from strop.learners.local.checkpoint import read_manifest
    from strop.schema.job import Checkpoint
    from strop.store.checkpoints import checkpoint_id
    from strop.store.jobs import name_output
    from strop.store.published import publish_checkpoint

    if result.status is not JobStatus.SUCCEEDED or result.checkpoint is None:
        return None
    manifest = read_manifest(result.checkpoint)
    if result.already_finished and manifest.position["job_id"] != session.job_id:
        return None  # its own may have died between its last checkpoint and this
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
    database = session.store.database
    model = publish_checkpoint(database, checkpoint, wanted, next_free=True)
    if model.name != wanted:
        with database.write() as writing:
            name_output(writing, session.job_id, model.name)
    text = msg("published as {name}", name=model.name)
    if model.name != wanted:
        text += msg(": {wanted} stands for other weights already", wanted=wanted)
    session.backends.recorder.event(
        "published",
        text,
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
        console.print(ending_text(), style="yellow")

    if sys.platform != "win32":
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupted)


def summary(
    config: JobConfig, job_id: str, result: RunResult, *, published_as: str | None
) -> dict[str, object]:
    """What a script wants to know of a finished run."""
    hyper, kind = config.hyper_parameters, config.training_type
    measured = "loss" if kind.offline else "mean_at_1"
    return {
        "job_id": job_id,
        "status": result.status.value,
        "model": config.model.name,
        "training_type": kind.value,
        "algorithm": kind.value if kind.offline else hyper.algorithm,
        "seed": hyper.seed,
        "steps": result.steps,
        "target_reached": result.target_reached,
        "validation": [{"step": step, measured: value} for step, value in result.validations],
        "tokens_sampled": result.sampled_tokens,
        "tokens_trained": result.trained_tokens,
        "checkpoint": str(result.checkpoint) if result.checkpoint else None,
        "best_checkpoint": str(result.best) if result.best else None,
        "published_as": published_as,
    }
