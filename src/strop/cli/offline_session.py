"""A checked offline job -> learner, store and rows, wired; closed again in every case.

The counterpart of `cli.session` for trainings that sample nothing: no engine, no gateway, no function workers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from strop.cli.checking import load_both, with_dtypes
from strop.cli.job_record import Submitted, open_record, telling_failed_start, watching
from strop.cli.run_folder import Resumed, claim_folder
from strop.cli.session import new_job, new_job_id
from strop.config.inputs import hash_inputs
from strop.config.job import JobConfig
from strop.config.notes import total_steps
from strop.data.dataset import Dataset
from strop.data.examples import load_examples
from strop.errors import ModelError
from strop.inference.chat.answers import TextTokens
from strop.learners import models
from strop.learners.local.checkpoint import Checkpoints
from strop.learners.local.rows import LocalRowTrainer
from strop.locales import msg
from strop.rl.interfaces import OfflineBackends
from strop.rl.offline import RowLearner
from strop.schema.example import Example
from strop.store.recorder import StoreRecorder
from strop.tracing.event_bus import EventBus, Subscriber


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineSession:
    """A job with everything it needs, ready for `rl.offline.train_offline`.

    `published_as` is set when it is through.
    """

    config: JobConfig
    job_id: str
    folder: Path
    backends: OfflineBackends
    store: StoreRecorder
    training: Dataset[Example]
    validation: Dataset[Example] | None
    code: Mapping[str, str]
    published_as: str | None = None

    @property
    def total_steps(self) -> int:
        return total_steps(self.config.hyper_parameters, len(self.training))


@asynccontextmanager
async def open_offline_session(
    config: JobConfig,
    *,
    out: Path | None,
    resumed: Resumed | None = None,
    anew: bool = False,
    watchers: Sequence[Subscriber],
    say: models.OnProgress,
    submitted: Submitted | None = None,
) -> AsyncIterator[OfflineSession]:
    """Check folder and data, load the model, open the store, and close all of it when the block ends.

    `out`, `resumed` and `anew` as for `run_folder.claim_folder`. `say` hears what takes long. A
    `submitted` job is in the store already and has its own way with statuses.

    Raises:
        ConfigError: the folder cannot be written or is another run's; nothing has been loaded then.
        DataError: rows that cannot be used.
        ModelError, StoreError: a model that cannot be trained, a database that cannot be opened.
    """
    config = with_dtypes(config)
    hyper = config.hyper_parameters
    job_id = submitted.job_id if submitted is not None else new_job_id()
    async with AsyncExitStack() as stack:
        held = stack.enter_context(ExitStack())
        folder = claim_folder(
            held, job_id, out=out, resumed=resumed, anew=anew, submitted=submitted is not None
        )
        torch.manual_seed(hyper.seed)  # else each process draws a seed of its own
        model, tokenizer = models.load(config.model.name, on_progress=say)
        refuse_too_long(model, hyper.max_length)
        training, validation = load_rows(config, TextTokens(tokenizer, end_ids=end_ids(model, tokenizer)))

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
        trackers, _ = held.enter_context(watching(config, job_id, folder, recorder))
        recording = recorder if submitted is None else submitted.around(recorder)
        bus = EventBus(recording, trackers, *watchers)
        with telling_failed_start(bus):
            trainer = LocalRowTrainer(model, tokenizer, hyper)
        if trainer.notice is not None:
            recorder.event("note", trainer.notice)
        yield OfflineSession(
            config=config,
            job_id=job_id,
            folder=folder,
            backends=OfflineBackends(
                learner=RowLearner(trainer, hyper, total_steps=total_steps(hyper, len(training))),
                checkpoints=Checkpoints(trainer),
                recorder=bus,
            ),
            store=recorder,
            training=training,
            validation=validation,
            code=inputs["code"],
        )


def refuse_too_long(model: Any, max_length: int) -> None:
    """A model has rotations or positions for so many tokens and no more."""
    made_for = getattr(model.config, "max_position_embeddings", None)
    if made_for is not None and max_length > made_for:
        raise ModelError(
            msg(
                "max_length {max_length} is beyond the {made_for} positions the model was made for",
                max_length=max_length,
                made_for=made_for,
            ),
            fix=msg("set max_length to at most {made_for}", made_for=made_for),
        )


def end_ids(model: Any, tokenizer: Any) -> set[int]:
    """The tokens that end a turn when the model says them."""
    named = getattr(model.generation_config, "eos_token_id", None)
    found = named if isinstance(named, list) else [named]
    return {one for one in (*found, tokenizer.eos_token_id) if isinstance(one, int)}


def load_rows(config: JobConfig, tokens: TextTokens) -> tuple[Dataset[Example], Dataset[Example] | None]:
    """Training and validation rows, every bad row of both in one error."""

    def load(path: Path) -> Dataset[Example]:
        return load_examples(
            path, config.training_type, max_length=config.hyper_parameters.max_length, tokens=tokens
        )

    return load_both(config, load, id_of=lambda example: example.example_id)
