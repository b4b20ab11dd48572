"""A checked job -> what samples and scores: engine, gateway and functions, wired to each other.

A training and an evaluation have these in common; `cli.session` adds what learns.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from strop.cli.span_sending import span_environment
from strop.config.job import JobConfig
from strop.inference.gateway import Gateway
from strop.inference.local import Engine, EngineConfig
from strop.learners import models
from strop.learners.quiet import quiet_transformers
from strop.locales import msg
from strop.store.recorder import StoreRecorder
from strop.tracing.tracing import is_on
from strop.workers.functions import FunctionPool


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingBackends:
    """Loaded, and not yet started: rows can be measured by the tokenizer before any function is."""

    folder: Path
    """Where the model is: whoever trains it loads it from there, too."""
    tokenizer: Any
    engine: Engine
    gateway: Gateway

    def functions(
        self, config: JobConfig, job_id: str, recorder: StoreRecorder, pythons: Mapping[str, Path]
    ) -> FunctionPool:
        """The job's functions, whose lines and spans go to its record. `pythons` are the interpreters of layers."""
        self.gateway.tell_spans(job_id, recorder.spans)
        return FunctionPool(
            config.functions,
            root=Path(config.workspace_dir),
            job_id=job_id,
            on_line=recorder.log,
            pythons=pythons,
            tracing=span_environment(job_id),
            on_spans=recorder.spans if is_on() else None,
        )

    async def start(self, stack: AsyncExitStack, pool: FunctionPool, say: models.OnProgress) -> None:
        """Start functions, engine and gateway; the stack takes them down."""
        say(msg("starting the functions"))
        await stack.enter_async_context(pool)
        self.engine.start()
        stack.callback(self.engine.close)
        await self.gateway.start()
        stack.push_async_callback(self.gateway.stop)


def load_backends(config: JobConfig, *, max_sequences: int, say: models.OnProgress) -> SamplingBackends:
    """An engine for the job's model, and a gateway in front of it.

    Raises:
        ModelError: it cannot be loaded.
    Side effects:
        Seeds torch: else each process draws a seed of its own.
    """
    hyper = config.hyper_parameters
    torch.manual_seed(hyper.seed)
    folder = models.resolve(config.model.name, on_progress=say)
    wanted = EngineConfig(
        dtype=hyper.sampling_dtype, max_length=hyper.max_length, max_sequences=max_sequences
    )
    with quiet_transformers():
        engine = Engine.from_folder(folder, wanted)
    tokenizer = models.load_tokenizer(folder)
    gateway = Gateway(
        engine, tokenizer, model_name=config.model.name, max_length=hyper.max_length, seed=hyper.seed
    )
    return SamplingBackends(folder=folder, tokenizer=tokenizer, engine=engine, gateway=gateway)
