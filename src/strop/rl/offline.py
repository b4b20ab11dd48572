"""Rows + trainer -> a trained model, with nothing sampled: SFT, DPO and continued pre-training, in order.

dataset -> batch -> update, then validate and save when due: stages 1, 5, 6 and 7 of `rl.loop`, whose
counterpart this is. Validation is the loss on held-out rows: before the first step, every `eval_steps`, at
the end.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from strop.config.job import HyperParameters, JobConfig
from strop.data.dataset import Dataset, Draw
from strop.data.examples import overlap_notes
from strop.locales import msg
from strop.rl.batch import pack
from strop.rl.failures import SKIPPED, skipped_in_a_row, was_skipped
from strop.rl.fingerprint import run_fingerprint
from strop.rl.interfaces import OfflineBackends, RowTrainer
from strop.rl.rollout import Report
from strop.rl.schedule import learning_rate
from strop.rl.stop import StopFlag
from strop.rl.stopwatch import Stopwatch
from strop.rl.train_state import TrainState
from strop.rl.trainer import RunResult, Trainer, run_to_its_end
from strop.schema.batch import Batch, LossNormalizer, MiniBatch, Pack
from strop.schema.example import Example

VALIDATION = "validation/data/"
VALIDATED = {
    "actor/loss": "loss",
    "lm/perplexity": "perplexity",
    "dpo/rewards/accuracy": "preference_accuracy",
    "dpo/rewards/margin": "preference_margin",
}
"""What the learner calls it -> what it is called when measured on held-out rows."""


async def train_offline(
    config: JobConfig,
    backends: OfflineBackends,
    training: Dataset[Example],
    validation: Dataset[Example] | None,
    *,
    job_id: str,
    folder: Path,
    stop: StopFlag,
    resume_from: Path | None = None,
    code: Mapping[str, str] = MappingProxyType({}),
    accept_changes: bool = False,
) -> RunResult:
    """Run a job to its end or until `stop`, from its start or a checkpoint; checkpoints go below `folder`.

    Returns:
        As `rl.loop.train`, but `validations` holds (step, loss), of which the lowest is the best.
    Raises:
        TrainingError: the numbers went wrong, or nothing was learned.
        StropError: a backend refused.
    Side effects:
        Records the job's status from RUNNING on, at last SUCCEEDED, CANCELED, or FAILED with the error
        raised.
    """

    def begin() -> _OfflineRun:
        held_out = None if validation is None else _as_json(validation)
        start = TrainState(fingerprint=run_fingerprint(config, _as_json(training), held_out, code))
        return _OfflineRun(
            config, backends, training, validation, start, job_id, folder, stop, accept_changes
        )

    return await run_to_its_end(begin, backends.recorder, resume_from=resume_from)


class _OfflineRun(Trainer[Example]):
    """A run's learner, and what one of its steps is."""

    after_a_return = msg("past the rows of these steps")

    def __init__(
        self,
        config: JobConfig,
        backends: OfflineBackends,
        training: Dataset[Example],
        validation: Dataset[Example] | None,
        start: TrainState,
        job_id: str,
        folder: Path,
        stop: StopFlag,
        accept_changes: bool,
    ) -> None:
        super().__init__(
            config,
            training,
            validation,
            recorder=backends.recorder,
            checkpoints=backends.checkpoints,
            learned=backends.learner.learned,
            state=start,
            overlap_notes=overlap_notes,
            job_id=job_id,
            folder=folder,
            stop=stop,
            accept_changes=accept_changes,
        )
        self.learner = backends.learner
        self.held_out = packs_of(validation.samples) if validation is not None else []

    async def before_loading(self) -> None:
        """Ask the reference about every row that the run will compare."""
        if compared := [one for one in self.rows_to_come() if one.pairs]:
            packs = packs_of(compared)
            await asyncio.to_thread(
                self.learner.remember_reference, packs, self.report(0, "reference", len(packs))
            )

    def rows_to_come(self) -> list[Example]:
        """Every row that the run will draw, once, and those held out."""
        draws = self.training.draws(self.hyper.batch_size, self.hyper.seed)
        drawn = {one.example_id: one for draw in islice(draws, self.last_step) for one in draw.samples}
        return [*drawn.values(), *(self.validation.samples if self.validation is not None else ())]

    async def step(self) -> None:
        """One batch of rows, one optimizer update."""
        draw, took = self.draw_at(self.state), Stopwatch()
        step = self.state.step + 1
        with took("step"):
            batch = offline_batch(step, draw.samples)
            [mini] = batch.mini_batches
            self.between_steps = False
            with took("update_actor"):
                self.recorder.progress(step, "update", 0, 1)
                updates = await asyncio.to_thread(self.learner.update, batch)
                self.recorder.progress(step, "update", 1, 1)
        self.measured(step, **updates, **step_metrics(took.seconds, mini, epoch=draw.epoch))
        if was_skipped(updates):
            text = SKIPPED
            self.recorder.event("update_skipped", text, step=step)
        skipped_steps = skipped_in_a_row(
            self.state.skipped_steps,
            updates,
            look_for=msg("broken rows in the data of these steps"),
        )
        self.policy_version += int(updates["actor/num_updates"])
        self.state = replace(
            past(self.state, draw),
            skipped_steps=skipped_steps,
            skipped=self.state.skipped + (skipped_steps > 0),
        )
        self.between_steps = True

    def draw_at(self, at: TrainState) -> Draw[Example]:
        size = self.hyper.batch_size
        return self.training.draw(size, batch_size=size, seed=self.hyper.seed, epoch=at.epoch, index=at.index)

    def state_after_return(self, left: TrainState) -> TrainState:
        """Beyond the steps that failed. Their very rows would only lead where they led before, and rows come
        in their order: with earlier weights the run goes on with the next ones."""
        return past(left, self.draw_at(left))

    async def validate(self) -> None:
        at, took = self.state, Stopwatch()
        with took("timing/s/validation"):
            report = self.report(at.step, "validation", len(self.held_out))
            found = await asyncio.to_thread(self.learner.measure, self.held_out, report)
        metrics = {f"{VALIDATION}{name}": found[key] for key, name in VALIDATED.items() if key in found}
        self.measured(at.step, **metrics, **took.seconds)
        loss = found["actor/loss"]
        score = loss if math.isfinite(loss) else None
        self.state = replace(at, validations=(*at.validations, (at.step, score)))

    def report(self, step: int, phase: str, total: int) -> Report:
        """Tells how far the learner's thread is, from now on, and ends its work once the run is to end."""
        loop = asyncio.get_running_loop()
        self.recorder.progress(step, phase, 0, total)

        def told(done: int, total: int) -> None:
            loop.call_soon_threadsafe(self.recorder.progress, step, phase, done, total)
            self.stop.check()

        return told


class RowLearner:
    """The weights of an offline run of `total_steps`, and what one of its updates is."""

    def __init__(self, trainer: RowTrainer, hyper_parameters: HyperParameters, *, total_steps: int) -> None:
        self.trainer = trainer
        self._hyper = hyper_parameters
        self._total_steps = total_steps

    def remember_reference(self, packs: Sequence[Pack], report: Report | None = None) -> None:
        """Compute what the start weights think of compared answers; before any update and any load.

        `report` is told (done, total) packs on the way; what it raises ends the work.
        """
        self.trainer.remember_reference(packs, report)

    def update(self, batch: Batch) -> dict[str, float]:
        """Run the optimizer updates of one step.

        Returns:
            Metrics under their registry names, each a mean over the updates. A gradient that is not finite
            makes no optimizer step.
        """
        rate = learning_rate(max(0, batch.step - 1), self._hyper, total_steps=self._total_steps)
        stepped, updates = 0, list[dict[str, float]]()
        for mini in batch.mini_batches:
            result = self.trainer.forward_backward(mini.packs, row_normalizer(mini.packs))
            step = self.trainer.optim_step(rate, max_grad_norm=self._hyper.max_grad_norm)
            stepped += step.applied
            updates.append({**result.metrics, "actor/grad_norm": step.grad_norm})
        names = sorted({name for one in updates for name in one})
        return {
            **_with_perplexity(
                {name: sum(one.get(name, 0.0) for one in updates) / len(updates) for name in names}
            ),
            "actor/lr": rate,
            "actor/num_updates": float(stepped),
            "actor/skipped_updates": float(len(updates) - stepped),
        }

    def measure(self, packs: Sequence[Pack], report: Report | None = None) -> dict[str, float]:
        """The loss and its parts on `packs`, without learning from them; `report` as above."""
        return _with_perplexity(self.trainer.evaluate(packs, row_normalizer(packs), report).metrics)

    def learned(self) -> bool:
        """Whether any weight differs from what it was when the run began."""
        return self.trainer.learned()


def row_normalizer(packs: Sequence[Pack]) -> LossNormalizer:
    """The denominators of an update or a validation, over all of its packs."""
    sequences = [sequence for pack in packs for sequence in pack.sequences]
    return LossNormalizer(
        num_tokens=math.fsum(sequence.weight * sequence.num_loss_tokens for sequence in sequences),
        num_pairs=sum(len(pack.pairs) for pack in packs),
    )


def _with_perplexity(found: Mapping[str, float]) -> dict[str, float]:
    """The exponential of the mean, not the mean of exponentials; infinite beyond what a float holds."""
    if "lm/loss" not in found:
        return dict(found)
    loss = found["lm/loss"]
    return {**found, "lm/perplexity": math.exp(loss) if loss < 700 else math.inf}


def past(at: TrainState, draw: Draw[Example]) -> TrainState:
    """The state once the step at `at`, which drew `draw`, is through."""
    sequences = [sequence for one in draw.samples for sequence in one.sequences]
    return replace(
        at,
        step=at.step + 1,
        epoch=draw.next_epoch,
        index=draw.next_index,
        trained_tokens=at.trained_tokens + sum(sequence.num_loss_tokens for sequence in sequences),
        epoch_ended=draw.next_epoch > draw.epoch,
    )


def step_metrics(seconds: Mapping[str, float], mini: MiniBatch, *, epoch: int) -> dict[str, float]:
    """Times and sizes of a step, under their registry names."""
    trained = sum(len(one.token_ids) for one in mini.packs)
    return {
        **{f"timing/s/{phase}": value for phase, value in seconds.items()},
        "timing/ms/update_actor_per_token": 1000.0 * seconds["update_actor"] / trained,
        "trace/training/epoch": float(epoch),
        "perf/loss_tokens": float(mini.num_loss_tokens),
        "perf/total_num_tokens": float(trained),
        "perf/trained_tokens": float(trained),
        "perf/time_per_step": seconds["step"],
        "perf/throughput": trained / seconds["step"],
    }


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


def _as_json(dataset: Dataset[Example]) -> list[list[Any]]:
    """What is learned from; another tokenizer makes other rows."""
    return [
        [[(one.token_ids, one.loss_mask, one.weight) for one in example.sequences], example.pairs]
        for example in dataset.samples
    ]
