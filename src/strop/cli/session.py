"""A checked job -> its backends, running and wired to each other; closed again in every case.

The only place where policy, engine, gateway, workers, store and flow meet. Used by `strop run` and `strop demo`.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from strop.cli.checking import load_both, with_dtypes
from strop.cli.job_record import Examiner, Submitted, open_record, telling_failed_start, watching
from strop.cli.run_folder import Resumed, claim_folder
from strop.cli.sampling_backends import load_backends
from strop.config.describing import describe
from strop.config.inputs import hash_inputs
from strop.config.job import JobConfig
from strop.config.notes import total_steps
from strop.data.dataset import Dataset, load_dataset
from strop.inference.gateway import Gateway
from strop.inference.local import Engine, SharedMemorySync
from strop.learners import models
from strop.learners.local.checkpoint import Checkpoints
from strop.learners.local.critic import LocalValueTrainer
from strop.learners.local.policy import LocalPolicyTrainer
from strop.learners.local.teacher import Teacher
from strop.locales import msg
from strop.rl.interfaces import Backends
from strop.rl.metrics import PREFILLED, PREFIX_HITS
from strop.rl.update import CriticLearner, PolicyLearner
from strop.schema.job import Job, JobStatus
from strop.store.recorder import StoreRecorder
from strop.tracing.event_bus import EventBus, Subscriber

MAX_SEQUENCES = 256
"""Sequences the engine batches at most; beyond it a CPU gains nothing, and the rest waits."""

NOT_REPEATABLE = msg(
    "with this model on this machine, sampling depends in the last bits on "
    "which calls are made at once: a run repeats and resumes up to "
    "rounding, not bit for bit"
)


AHEAD = msg("steps are sampled ahead (max_staleness): a run neither repeats nor resumes bit for bit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A job with everything it needs, ready for `rl.loop.train`. `published_as` is set when it is through."""

    config: JobConfig
    job_id: str
    folder: Path
    backends: Backends
    store: StoreRecorder
    training: Dataset
    validation: Dataset | None
    code: Mapping[str, str]
    published_as: str | None = None

    @property
    def total_steps(self) -> int:
        return total_steps(self.config.hyper_parameters, len(self.training))


@asynccontextmanager
async def open_session(
    config: JobConfig,
    *,
    out: Path | None,
    resumed: Resumed | None = None,
    anew: bool = False,
    watchers: Sequence[Subscriber],
    say: models.OnProgress,
    submitted: Submitted | None = None,
    pythons: Mapping[str, Path] = MappingProxyType({}),
) -> AsyncIterator[Session]:
    """Check folder and data, start every machine, and take all of them down when the block ends.

    `out`, `resumed` and `anew` as for `run_folder.claim_folder`. `say` hears what takes long. A `submitted` job
    is in the store already and has its own way with statuses; `pythons` are the interpreters of its layers.

    Raises:
        ConfigError: the folder cannot be written or is another run's; nothing has been loaded then.
        DataError: rows that cannot be used; no function has been started then.
        FunctionError, ModelError, StoreError: a machine that cannot start.
    """
    config = with_dtypes(config)
    hyper = config.hyper_parameters
    job_id = submitted.job_id if submitted is not None else new_job_id()
    async with AsyncExitStack() as stack:
        held = stack.enter_context(ExitStack())
        folder = claim_folder(
            held, job_id, out=out, resumed=resumed, anew=anew, submitted=submitted is not None
        )
        at_once = min(hyper.batch_size * hyper.n_rollouts, MAX_SEQUENCES)
        sampling = load_backends(config, max_sequences=at_once, say=say)
        tokenizer = sampling.tokenizer
        engine, gateway = sampling.engine, sampling.gateway
        training, validation = load_datasets(config, gateway)

        inputs = hash_inputs(config, training, validation)
        recorder = open_record(
            held,
            new_job(config, job_id),
            folder=folder,
            resumed=resumed,
            say=say,
            inputs=inputs,
            submitted=submitted,
        )
        trackers, webhook = held.enter_context(watching(config, job_id, folder, recorder))
        examiner = Examiner(
            recorder, job_id, hyper.algorithm, stop_on=config.diagnosis.stop_on, webhook=webhook
        )
        pool = sampling.functions(config, job_id, recorder, pythons)
        recording = recorder if submitted is None else submitted.around(recorder)
        bus = EventBus(recording, trackers, *watchers, examiner)
        with telling_failed_start(bus):
            steps = total_steps(hyper, len(training))
            model, _ = models.load(sampling.folder)
            # Before the policy: its trainer takes the model over, and the critic begins as a copy of it.
            critic = LocalValueTrainer(model, hyper) if hyper.method.critic else None
            teacher = load_teacher(config, tokenizer, say)
            trainer = LocalPolicyTrainer(
                model, tokenizer, hyper, teacher_sha256=None if teacher is None else teacher.sha256
            )
            await sampling.start(stack, pool, say)
        if trainer.notice is not None:
            recorder.event("note", trainer.notice)
        if not engine.repeatable:
            recorder.event("note", NOT_REPEATABLE)
        if hyper.max_staleness:
            recorder.event("note", AHEAD)
        for note in pool.notes:
            recorder.event("note", note)
        yield Session(
            config=config,
            job_id=job_id,
            folder=folder,
            backends=Backends(
                gateway=gateway,
                functions=pool,
                learner=PolicyLearner(trainer, hyper, total_steps=steps, teacher=teacher),
                critic=None if critic is None else CriticLearner(critic, hyper, total_steps=steps),
                checkpoints=Checkpoints(trainer, *([critic] if critic is not None else [])),
                weight_sync=SharedMemorySync(engine, stays_awake=hyper.max_staleness > 0),
                recorder=bus,
                counters=lambda: counted(gateway, engine),
            ),
            store=recorder,
            training=training,
            validation=validation,
            code=inputs["code"],
        )


def load_teacher(config: JobConfig, tokenizer: Any, say: models.OnProgress) -> Teacher | None:
    """The frozen model that judges the student's tokens, where the job has one."""
    name = config.training.teacher_model
    if name is None:
        return None
    say(msg("loading the teacher"))
    model, its_tokenizer = models.load(name, on_progress=say)
    return Teacher(model, its_tokenizer, config.hyper_parameters, student_tokenizer=tokenizer)


def load_datasets(config: JobConfig, gateway: Gateway) -> tuple[Dataset, Dataset | None]:
    """Training and validation rows, every bad row of both in one error."""

    def load(path: Path) -> Dataset:
        return load_dataset(
            path,
            max_prompt_length=config.hyper_parameters.max_prompt_length,
            prompt_length=gateway.prompt_length,
        )

    return load_both(config, load, id_of=lambda sample: sample.sample_id)


def counted(gateway: Gateway, engine: Engine) -> dict[str, float]:
    """What both have counted so far, by the names in `rl.metrics`."""
    calls, tokens = gateway.stats, engine.stats()
    return {
        "trace/rerendered_prompts": calls.rerendered_prompts,
        "trace/tool_parse_errors": calls.tool_parse_errors,
        "trace/refused_calls": calls.refused_calls,
        "trace/aborted_calls": calls.aborted_calls,
        "trace/replayed_calls": calls.replayed_calls,
        PREFIX_HITS: tokens.num_prefix_hits,
        PREFILLED: tokens.num_prefilled,
    }


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
