"""Rows + learner -> a trained model, with nothing sampled: SFT, DPO and continued pre-training, in order.

dataset -> batch -> update, then validate and save when due: stages 1, 5, 6 and 7 of `pipeline.loop`, whose
counterpart this is. Validation is the loss on held-out rows: before the first step, every `eval_steps`, at
the end.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from strop.errors import TrainingError
from strop.observability.metrics import NameGate
from strop.pipeline.batch import pack
from strop.pipeline.dataset import Dataset, Draw
from strop.pipeline.examples import overlap_notes
from strop.pipeline.failures import MAX_SKIPPED_STEPS
from strop.pipeline.job_notes import notes, total_steps
from strop.pipeline.loop import RunResult
from strop.pipeline.ports import OfflineMachines
from strop.pipeline.position import MAY_CHANGE, Position, saved_position
from strop.pipeline.save import Shelf, kept_in, save_is_due
from strop.pipeline.stop import StopFlag, Stopped
from strop.pipeline.stopwatch import Stopwatch
from strop.pipeline.validation import validation_is_due
from strop.schema.batch import Batch, MiniBatch, Pack
from strop.schema.config import JobConfig
from strop.schema.example import Example
from strop.schema.job import JobStatus

VALIDATION = "validation/data/"
_VALIDATED = {
    "actor/loss": "loss",
    "lm/perplexity": "perplexity",
    "dpo/rewards/accuracy": "preference_accuracy",
    "dpo/rewards/margin": "preference_margin",
}
"""What the learner calls it -> what it is called when measured on held-out rows."""


async def train_offline(
    config: JobConfig,
    machines: OfflineMachines,
    training: Dataset[Example],
    validation: Dataset[Example] | None,
    *,
    job_id: str,
    folder: Path,
    stop: StopFlag,
    resume_from: Path | None = None,
) -> RunResult:
    """Run a job to its end or until `stop`, from its start or a checkpoint; checkpoints go below `folder`.

    Returns:
        As `pipeline.loop.train`, but `validations` holds (step, loss), of which the lowest is the best.
    Raises:
        TrainingError: the numbers went wrong.
        StropError: a machine refused.
    Side effects:
        Records the job's status from RUNNING on, at last SUCCEEDED, CANCELED, or FAILED with the error
        raised.
    """
    recorder = machines.recorder
    recorder.status(JobStatus.RUNNING)
    try:
        run = _OfflineRun(config, machines, training, validation, job_id, folder, stop)
        status = await run.start(resume_from) or await run.to_the_end()
    except asyncio.CancelledError:
        recorder.status(JobStatus.CANCELED)
        raise
    except Exception as error:
        recorder.status(JobStatus.FAILED, error=str(error))
        raise
    recorder.status(status)
    return RunResult(
        status=status,
        steps=run.position.step,
        checkpoint=run.shelf.newest,
        best=run.shelf.best,
        validations=run.position.validations,
        sampled_tokens=0,
        trained_tokens=run.position.trained_tokens,
    )


class _OfflineRun:
    """A run's machines and how far it has come."""

    def __init__(
        self,
        config: JobConfig,
        machines: OfflineMachines,
        training: Dataset[Example],
        validation: Dataset[Example] | None,
        job_id: str,
        folder: Path,
        stop: StopFlag,
    ) -> None:
        self.job_id = job_id
        self.config, self.hyper = config, config.hyper_parameters
        self.learner, self.checkpoints = machines.learner, machines.checkpoints
        self.recorder, self.stop = machines.recorder, stop
        self.training, self.validation = training, validation
        training.steps_per_epoch(self.hyper.batch_size)  # refuses a dataset smaller than one step
        self.last_step = total_steps(self.hyper, len(training))
        self.position = _start(config, training)
        self.held_out = packs_of(validation.samples) if validation is not None else []
        self.shelf = Shelf(
            folder / "checkpoints",
            self.hyper.save_total_limit,
            self.checkpoints,
            self.recorder,
            stop.wait,
            lower_is_better=True,
        )
        self.names = NameGate()
        self.updates = 0

    async def start(self, resume_from: Path | None) -> JobStatus | None:
        """Tell the notes, ask the reference, load what is resumed. A status if nothing is left to do."""
        self.tell_notes()
        if compared := [one for one in self.rows_to_come() if one.pairs]:
            self.recorder.progress(0, "reference", 0, 1)
            await asyncio.to_thread(self.learner.remember_reference, packs_of(compared))
            self.recorder.progress(0, "reference", 1, 1)
        if resume_from is None:
            return None
        saved = await asyncio.to_thread(self.checkpoints.load, resume_from)
        self.position = saved_position(saved, self.position)
        self.updates = int(saved["updates"])
        self.shelf.take_over(kept_in(saved), resume_from, step=self.position.step)
        self.recorder.event("resumed", f"goes on after step {self.position.step}", step=self.position.step)
        if saved["published"] and self.position.step >= self.last_step:
            text = f"already finished: all {self.last_step} steps are in {resume_from}"
            self.recorder.event("already_finished", text, step=self.position.step)
            return JobStatus.SUCCEEDED
        return None

    def rows_to_come(self) -> list[Example]:
        """Every row that the run will draw, once, and those held out."""
        draws = self.training.draws(self.hyper.batch_size, self.hyper.seed)
        drawn = {one.example_id: one for draw in islice(draws, self.last_step) for one in draw.samples}
        return [*drawn.values(), *(self.validation.samples if self.validation is not None else ())]

    async def to_the_end(self) -> JobStatus:
        """Step after step, validating and saving where it is due; validation also before the first."""
        at = self.position
        draws = self.training.draws(self.hyper.batch_size, self.hyper.seed, epoch=at.epoch, index=at.index)
        try:
            while True:
                self.stop.check()
                await self.validate_if_due()
                await self.save_if_due()
                if self.position.step >= self.last_step:
                    return JobStatus.SUCCEEDED
                self.stop.check()
                await self.step(next(draws))
        except Stopped:
            await self.save(published=False)
            return JobStatus.CANCELED

    async def step(self, draw: Draw[Example]) -> None:
        """One batch of rows, one optimizer update."""
        step, took = self.position.step + 1, Stopwatch()
        with took("step"):
            batch = offline_batch(step, draw.samples)
            [mini] = batch.mini_batches
            with took("update_actor"):
                self.recorder.progress(step, "update", 0, 1)
                updates = await asyncio.to_thread(self.learner.update, batch)
                self.recorder.progress(step, "update", 1, 1)
        self.stop_if_nothing_finite(step, updates)
        self.updates += int(updates["actor/num_updates"])
        self.position = replace(
            self.position,
            step=step,
            epoch=draw.next_epoch,
            index=draw.next_index,
            trained_tokens=self.position.trained_tokens + mini.num_loss_tokens,
            epoch_ended=draw.next_epoch > draw.epoch,
        )
        seconds, trained = took.seconds, sum(len(one.token_ids) for one in mini.packs)
        self.measured(
            step,
            {
                **updates,
                **{f"timing/s/{phase}": value for phase, value in seconds.items()},
                "timing/ms/update_actor_per_token": 1000.0 * seconds["update_actor"] / trained,
                "trace/training/epoch": float(draw.epoch),
                "perf/loss_tokens": float(mini.num_loss_tokens),
                "perf/total_num_tokens": float(trained),
                "perf/trained_tokens": float(trained),
                "perf/time_per_step": seconds["step"],
                "perf/throughput": trained / seconds["step"],
            },
        )

    def stop_if_nothing_finite(self, step: int, updates: Mapping[str, float]) -> None:
        """A skipped update is told; several steps in a row without a finite gradient end the run."""
        if updates["actor/num_updates"]:
            self.position = replace(self.position, skipped_steps=0)
            return
        self.position = replace(self.position, skipped_steps=self.position.skipped_steps + 1)
        self.recorder.event("update_skipped", "an update was skipped: its gradient is not finite", step=step)
        if self.position.skipped_steps >= MAX_SKIPPED_STEPS:
            raise TrainingError(
                f"no update of the last {MAX_SKIPPED_STEPS} steps had a finite gradient",
                fix="lower learning_rate, or look for broken rows in the data of these steps",
            )

    async def validate_if_due(self) -> None:
        at = self.position
        due = validation_is_due(at.step, last_step=self.last_step, eval_steps=self.hyper.eval_steps)
        if not self.held_out or not due or at.validated:
            return
        took = Stopwatch()
        with took("timing/s/validation"):
            found = await asyncio.to_thread(self.learner.measure, self.held_out)
        measures = {f"{VALIDATION}{name}": found[key] for key, name in _VALIDATED.items() if key in found}
        self.measured(at.step, {**measures, **took.seconds})
        loss = found["actor/loss"]
        score = loss if math.isfinite(loss) else None
        self.position = replace(at, validations=(*at.validations, (at.step, score)))

    async def save_if_due(self) -> None:
        last = self.position.step >= self.last_step
        if last or save_is_due(self.hyper, self.position.step, epoch_ended=self.position.epoch_ended):
            await self.save(published=last)

    async def save(self, *, published: bool) -> None:
        """Save the last completed step, unless there is none or just that lies there already."""
        at = self.position
        if at.step == 0 or self.shelf.holds(at.step, at.validation, published=published):
            return
        took = Stopwatch()
        with took("timing/s/save"):
            await self.shelf.save(
                at.step,
                policy_version=self.updates,
                validation=at.validation,
                position={
                    **at.as_json(),
                    "published": published,
                    "updates": self.updates,
                    "job_id": self.job_id,
                },
                published=published,
                may_fail=not published,
            )
        self.measured(at.step, took.seconds)

    def measured(self, step: int, values: Mapping[str, float]) -> None:
        """Record values of declared metrics; others are refused."""
        self.recorder.metrics(step, self.names.admit(values))

    def tell_notes(self) -> None:
        lines = [*notes(self.config, num_samples=len(self.training)), *self.training.notes]
        if self.validation is not None:
            lines += [*self.validation.notes, *overlap_notes(self.training, self.validation)]
        for line in lines:
            self.recorder.event("note", line)


def offline_batch(step: int, examples: Iterable[Example]) -> Batch:
    """Pack each row as a prefix tree; all rows of a step are one optimizer update."""
    packs = packs_of(examples)
    mini = MiniBatch(
        packs=tuple(packs),
        num_rollouts=len(packs),
        num_loss_tokens=sum(sequence.num_loss_tokens for one in packs for sequence in one.sequences),
    )
    return Batch(step=step, mini_batches=(mini,))


def packs_of(examples: Iterable[Example]) -> list[Pack]:
    return [replace(pack(example.sequences), pairs=example.pairs) for example in examples]


def _start(config: JobConfig, training: Dataset[Example]) -> Position:
    """Before the first step. Names what is learned from: a resumed run cannot go on with other rows."""
    fixed = config.hyper_parameters.model_dump(mode="json", exclude=MAY_CHANGE)
    rows = [
        ([(one.token_ids, one.loss_mask, one.weight) for one in example.sequences], example.pairs)
        for example in training.samples
    ]
    named = json.dumps([config.training_type, fixed, rows], sort_keys=True)
    return Position(draws_from=hashlib.sha256(named.encode()).hexdigest()[:16])
