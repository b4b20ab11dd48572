"""A checked job -> its machines, running and wired to each other; closed again in every case.

The only place where policy, engine, gateway, workers, store and flow meet. Used by `strop run` and `strop demo`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from strop.cli.broadcast import Broadcast
from strop.cli.job_log import logging_to
from strop.cli.resume import Resumed
from strop.cli.run_folder import Earlier, claimed
from strop.cli.text import t
from strop.engine import Engine, EngineConfig
from strop.errors import DataError, Problem
from strop.gateway import Gateway
from strop.pipeline.config import describe
from strop.pipeline.dataset import Dataset, load_dataset
from strop.pipeline.inputs import hash_inputs
from strop.pipeline.job_notes import total_steps
from strop.pipeline.ports import Machines, Recorder
from strop.policy import models
from strop.policy.checkpoint import Checkpoints
from strop.policy.precision import has_fast_bfloat16
from strop.policy.update import Learner
from strop.runtime.pool import WorkerPool
from strop.schema.config import JobConfig
from strop.schema.job import Job, JobStatus
from strop.store.database import Database, open_database
from strop.store.home import home
from strop.store.jobs import claim_job, create_job, fail_lost_jobs, live_jobs
from strop.store.processes import this_process
from strop.store.published import INPUTS_EVENT
from strop.store.recorder import StoreRecorder

MAX_SEQUENCES = 256
"""Sequences the engine batches at most; beyond it a CPU gains nothing, and the rest waits."""

NOT_REPEATABLE = (
    "with this model on this machine, sampling depends in the last bits on which calls are made at once: a run "
    "repeats and resumes up to rounding, not bit for bit"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A job with everything it needs, ready for `pipeline.loop.train`. `published_as` is set when it is through."""

    config: JobConfig
    job_id: str
    folder: Path
    machines: Machines
    database: Database
    store: StoreRecorder
    training: Dataset
    validation: Dataset | None
    published_as: str | None = None

    @property
    def total_steps(self) -> int:
        return total_steps(self.config.hyper_parameters, len(self.training))


class Submitted(Protocol):
    """A job that a server has put into the store, and what becomes of the statuses that the run tells."""

    @property
    def job_id(self) -> str: ...

    def around(self, recorder: StoreRecorder) -> Recorder: ...


class EnginePublisher:
    """Publishing on one machine: the engine copies the learner's weights in memory."""

    def __init__(self, learner: Learner, engine: Engine) -> None:
        self._learner = learner
        self._engine = engine

    def publish(self) -> int:
        version = self._learner.policy_version
        self._engine.load_weights(self._learner.weights(), version=version)
        return version


@asynccontextmanager
async def open_session(
    config: JobConfig,
    *,
    out: Path | None,
    resumed: Resumed | None = None,
    anew: bool = False,
    watchers: Sequence[Recorder],
    say: models.OnProgress,
    submitted: Submitted | None = None,
    pythons: Mapping[str, Path] = MappingProxyType({}),
) -> AsyncIterator[Session]:
    """Check folder and data, start every machine, and take all of them down when the block ends.

    `out` is the job's folder; unless given that of the run `resumed`, else one below `STROP_HOME/jobs`. With
    `anew` checkpoints that lie there are removed. `say` hears what takes long. A `submitted` job is in the store
    already and has its own way with statuses; `pythons` are the interpreters of its layers.

    Raises:
        ConfigError: the folder cannot be written or is another run's; nothing has been loaded then.
        DataError: rows that cannot be used; no function has been started then.
        FunctionError, ModelError, StoreError: a machine that cannot start.
    """
    config = with_dtypes(config)
    hyper = config.hyper_parameters
    job_id = submitted.job_id if submitted is not None else new_job_id()
    folder = (out or (resumed.folder if resumed is not None else None) or home() / "jobs" / job_id).absolute()
    async with AsyncExitStack() as stack:
        stack.enter_context(
            claimed(
                folder,
                job_id=job_id,
                earlier=Earlier.KEEP if submitted is not None else _earlier(folder, resumed, anew=anew),
            )
        )
        model, tokenizer = models.load(config.model.name, on_progress=say)
        engine = Engine(
            model,
            tokenizer,
            EngineConfig(
                dtype=hyper.sampling_dtype,
                max_length=hyper.max_length,
                max_sequences=min(hyper.batch_size * hyper.n_rollouts, MAX_SEQUENCES),
            ),
        )
        gateway = Gateway(
            engine, tokenizer, model_name=config.model.name, max_length=hyper.max_length, seed=hyper.seed
        )
        training, validation = load_datasets(config, gateway)
        inputs = hash_inputs(config)

        database = open_database()
        stack.callback(database.close)
        lost, others = [], []
        if submitted is None:
            before = resumed.job_id if resumed is not None else None
            with database.write() as session:
                # Its folder could be claimed, so the process that had it is gone, on whatever machine it was.
                lost = fail_lost_jobs(
                    session, surely=before if resumed is not None and resumed.lies_in(folder) else None
                )
                others = live_jobs(session)
                create_job(session, new_job(config, job_id))
                claim_job(session, job_id, this_process(), resumes=before)
        recorder = stack.enter_context(StoreRecorder(database, job_id))
        stack.enter_context(logging_to(recorder.log))
        for text in [*map(_lost_note, lost), *map(_other_note, others)]:
            recorder.event("note", text)
            say(text)

        pool = WorkerPool(
            config.functions,
            root=Path(config.workspace_dir),
            job_id=job_id,
            on_line=recorder.log,
            pythons=pythons,
        )
        store: Recorder = recorder if submitted is None else submitted.around(recorder)
        try:
            learner = Learner(model, tokenizer, hyper, total_steps=total_steps(hyper, len(training)))
            say(t("starting the functions", "启动函数"))
            await stack.enter_async_context(pool)
            engine.start()
            stack.callback(engine.close)
            await gateway.start()
            stack.push_async_callback(gateway.stop)
        except asyncio.CancelledError:
            store.status(JobStatus.CANCELED)
            raise
        except Exception as error:
            store.status(JobStatus.FAILED, error=str(error) or type(error).__name__)
            raise
        recorder.event(INPUTS_EVENT, t("data and code hashed", "已计算数据与代码的哈希"), data=inputs)
        if learner.notice is not None:
            recorder.event("note", learner.notice)
        if not engine.repeatable:
            recorder.event("note", NOT_REPEATABLE)
        yield Session(
            config=config,
            job_id=job_id,
            folder=folder,
            machines=Machines(
                capture=gateway,
                functions=pool,
                learner=learner,
                checkpoints=Checkpoints(learner),
                publisher=EnginePublisher(learner, engine),
                recorder=Broadcast([store, *watchers]),
            ),
            database=database,
            store=recorder,
            training=training,
            validation=validation,
        )


def _earlier(folder: Path, resumed: Resumed | None, *, anew: bool) -> Earlier:
    if resumed is not None and resumed.lies_in(folder):
        return Earlier.KEEP
    return Earlier.REMOVE if anew else Earlier.REFUSE


def _lost_note(job: Job) -> str:
    return t(
        f"{job.job_id} was RUNNING without a process and is now FAILED",
        f"{job.job_id} 的进程已不存在，现已标记为 FAILED",
    )


def _other_note(job: Job) -> str:
    return t(
        f"{job.job_id} trains here too (process {job.pid}): both will be slower",
        f"{job.job_id} 也在本机训练（进程 {job.pid}）：两者都会变慢",
    )


def with_dtypes(config: JobConfig) -> JobConfig:
    """Put the processor's fastest dtype where the job says `auto`, so that the record holds what was used."""
    hyper = config.hyper_parameters
    fastest = "bfloat16" if has_fast_bfloat16() else "float32"
    auto = [name for name in ("train_dtype", "sampling_dtype") if getattr(hyper, name) == "auto"]
    chosen = dict.fromkeys(auto, fastest)
    training = config.training.model_copy(update={"hyper_parameters": hyper.model_copy(update=chosen)})
    return config.model_copy(update={"training": training})


def load_datasets(config: JobConfig, gateway: Gateway) -> tuple[Dataset, Dataset | None]:
    """Training and validation rows, every bad row of both in one error."""
    loaded: dict[str, Dataset] = {}
    problems: list[Problem] = []
    for dataset in config.datasets:
        try:
            loaded[dataset.type] = load_dataset(
                Path(dataset.file_name),
                max_prompt_length=config.hyper_parameters.max_prompt_length,
                prompt_length=gateway.prompt_length,
            )
        except DataError as error:
            problems += error.problems
    if problems:
        raise DataError(t("datasets", "数据集"), problems)
    return loaded["training"], loaded.get("validation")


def new_job_id() -> str:
    """Sortable by time, unguessable enough for a path, short enough to type."""
    return f"ft-{datetime.now(UTC):%Y%m%d%H%M%S}-{secrets.token_hex(3)}"


def new_job(config: JobConfig, job_id: str) -> Job:
    return Job(
        job_id=job_id,
        name=config.name,
        status=JobStatus.PENDING,
        model=config.model.name,
        config=describe(config),
        created_at=datetime.now(UTC),
    )
