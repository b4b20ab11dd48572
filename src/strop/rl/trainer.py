"""Job + state -> a run to its end: resume, step after step, validate and save, go back, end.

What every run has in common, whatever a step is: `rl.loop` and `rl.offline` bring that. Here
alone is decided when a checkpoint is loaded or written and which status a run ends with.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic

from strop.config.job import JobConfig
from strop.config.notes import notes, total_steps
from strop.data.dataset import Dataset, Item
from strop.errors import CheckpointError, told_of
from strop.locales import Message, joined, msg
from strop.rl.checkpoints import CheckpointManager, kept_in, save_is_due
from strop.rl.failures import MAX_ROLLBACKS, NothingFinite, nothing_learned
from strop.rl.fingerprint import changes
from strop.rl.interfaces import CheckpointWriter, Recorder
from strop.rl.stop import StopFlag, Stopped
from strop.rl.stopwatch import Stopwatch
from strop.rl.train_state import TrainState, saved_state
from strop.rl.validation import validation_is_due
from strop.schema.job import TARGET_REACHED_EVENT, JobStatus
from strop.tracing.metrics import NameGate

OverlapNotes = Callable[[Dataset[Item], Dataset[Item]], Sequence[str]]
"""What to say of rows that are trained on and validated on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended. `validations` holds (step, mean@1), of an offline run (step, loss); `checkpoint` is
    the newest, `best` the one that validated best, if any. `already_finished`: nothing was left to do.
    `target_reached`: validation is as good as `early_stopping_target` asks."""

    status: JobStatus
    steps: int
    checkpoint: Path | None
    best: Path | None
    validations: tuple[tuple[int, float | None], ...]
    sampled_tokens: int
    trained_tokens: int
    already_finished: bool = False
    target_reached: bool = False


async def run_to_its_end(
    begin: Callable[[], Trainer[Any]], recorder: Recorder, *, resume_from: Path | None
) -> RunResult:
    """Run what `begin` makes to its end or until it is stopped, from its start or a checkpoint.

    Raises:
        StropError: what `begin` or a step raises.
    Side effects:
        Records the job's status from RUNNING on, at last SUCCEEDED, CANCELED, or FAILED with the error
        raised.
    """
    recorder.status(JobStatus.RUNNING)
    try:
        run = begin()
        try:
            status = await run.start(resume_from) or await run.to_the_end()
        finally:
            await run.close()
    except asyncio.CancelledError:
        recorder.status(JobStatus.CANCELED)
        raise
    except Exception as error:
        recorder.status(JobStatus.FAILED, error=told_of(error))
        raise
    recorder.status(status)
    return RunResult(
        status=status,
        steps=run.state.step,
        checkpoint=run.shelf.newest,
        best=run.shelf.best,
        validations=run.state.validations,
        sampled_tokens=run.state.sampled_tokens,
        trained_tokens=run.state.trained_tokens,
        already_finished=run.already_finished,
        target_reached=run.has_reached_target,
    )


class Trainer(ABC, Generic[Item]):
    """How far a run has come, and what it does between its steps."""

    after_a_return: ClassVar[Message]
    """What is done otherwise after going back to a checkpoint, in words."""

    def __init__(
        self,
        config: JobConfig,
        training: Dataset[Item],
        validation: Dataset[Item] | None,
        *,
        recorder: Recorder,
        checkpoints: CheckpointWriter,
        learned: Callable[[], bool],
        state: TrainState,
        overlap_notes: OverlapNotes[Item],
        job_id: str,
        folder: Path,
        stop: StopFlag,
        accept_changes: bool,
    ) -> None:
        """`learned` says whether the weights differ from those that the run began with."""
        self.config, self.hyper = config, config.hyper_parameters
        self.training, self.validation, self.job_id = training, validation, job_id
        self.recorder, self.checkpoints, self.stop = recorder, checkpoints, stop
        training.steps_per_epoch(self.hyper.batch_size)  # refuses a dataset smaller than one step
        self.last_step = total_steps(self.hyper, len(training))
        self.state = state
        self.shelf = CheckpointManager(
            folder / "checkpoints",
            self.hyper.save_total_limit,
            checkpoints,
            recorder,
            stop.wait,
            lower_is_better=config.training_type.lower_is_better,
        )
        self.policy_version = 0
        self.names = NameGate()
        self.between_steps = True
        """Whether the learner's weights are those of `state`."""
        self.returned_to: Path | None = None
        self.already_finished = False
        self._learned = learned
        self._accept_changes = accept_changes
        self._overlap_notes = overlap_notes

    @abstractmethod
    async def step(self) -> None:
        """One step. Before its update none of it counts, after it all."""

    @abstractmethod
    async def validate(self) -> None:
        """Measure the policy of now on the validation rows and put the result into `state`."""

    async def before_loading(self) -> None:
        """What needs the start weights, before a checkpoint replaces them."""

    async def weights_changed(self) -> None:
        """Make the weights of now the ones in use, where others than the learner use them."""

    async def close(self) -> None:
        """Give up what is still under way; the run is over."""

    @abstractmethod
    def state_after_return(self, left: TrainState) -> TrainState:
        """Where to go on from after going back from `left`; `state` is that of the checkpoint."""

    @property
    def is_through(self) -> bool:
        """Whether the last step is done, or validation has reached its target. Refills use up rows, so the
        epochs may end before the steps do."""
        all_done = self.state.step >= self.last_step or self.state.epoch >= self.hyper.n_epochs
        return all_done or self.has_reached_target

    @property
    def has_reached_target(self) -> bool:
        return self.state.has_reached(self.hyper, lower_is_better=self.config.training_type.lower_is_better)

    async def start(self, resume_from: Path | None) -> JobStatus | None:
        """Tell the notes, load what is resumed, make the weights live. A status if nothing is left to do."""
        self.tell_notes()
        with suppress(Stopped):  # seen again before the first step, once it is known what there is already
            await self.before_loading()
        if resume_from is not None:
            saved = await self.load(resume_from)
            at = self.state.step
            self.shelf.take_over(kept_in(saved), resume_from, step=at)
            self.recorder.event("resumed", msg("goes on after step {at}", at=at), step=at)
            if saved["published"] and self.is_through:
                self.already_finished = True
                text = msg(
                    "already finished: all {at} steps are in {resume_from}", at=at, resume_from=resume_from
                )
                self.recorder.event("already_finished", text, step=at)
                return JobStatus.SUCCEEDED
        await self.weights_changed()
        return None

    async def load(self, folder: Path) -> dict[str, Any]:
        """Put learner and state where the checkpoint was written. Returns what was saved beside them.

        Raises:
            CheckpointError: it is damaged, or another job's; the learner is untouched then.
        """

        def belongs(saved: Mapping[str, Any]) -> None:
            saved_state(saved, self.state, accept_changes=self._accept_changes)

        saved = await asyncio.to_thread(self.checkpoints.load, folder, belongs)
        if (found := changes(saved["made_from"], self.state.fingerprint)) is not None:
            told = msg("goes on after changes that were accepted: ")
            text = told + joined(msg("; "), *found.lines)
            self.recorder.event("changed", text, step=int(saved["step"]), data={"changes": list(found.lines)})
            # What others measured, or on other rows, is compared with nothing from now on.
            saved["kept"] = [{**one, "validation": None} for one in saved["kept"]]
            saved["validations"] = []
        self.state = saved_state(saved, self.state, accept_changes=self._accept_changes)
        self.policy_version = int(saved["policy_version"])
        self.names = NameGate(admitted=saved["metric_names"])
        return saved

    async def to_the_end(self) -> JobStatus:
        """Go on until the last step, back to a checkpoint where nothing can be learned any more."""
        while True:
            try:
                return await self.go_on()
            except Stopped:
                await self.save(published=False)
                return JobStatus.CANCELED
            except NothingFinite as reason:
                await self.roll_back(reason)
            except CheckpointError:
                raise
            except Exception:  # whatever it was, no finished step is lost with it
                if self.between_steps:
                    await self.save(published=False)
                raise

    async def go_on(self) -> JobStatus:
        """Step after step, validating and saving where it is due; validation also before the first."""
        while True:
            self.stop.check()
            await self.validate_if_due()
            if self.is_through and not await asyncio.to_thread(self._learned):
                raise nothing_learned(self.state, critic_warmup=self.hyper.critic_warmup)
            await self.save_if_due()
            if self.is_through:
                self.tell_early_end()
                return JobStatus.SUCCEEDED
            self.stop.check()
            await self.step()

    def tell_early_end(self) -> None:
        at = self.state
        if self.has_reached_target and at.step < self.last_step:
            target, count = self.hyper.early_stopping_target, self.hyper.early_stopping_count
            times = msg(" {count} times in a row", count=count) if count > 1 else ""
            text = msg(
                "stopped after step {step} of {last_step}: validation reached its "
                "target{times} ({validation:.4g}, target {target:.4g})",
                step=at.step,
                last_step=self.last_step,
                times=times,
                validation=at.validation,
                target=target,
            )
            data = {"target": target, "validation": at.validation, "count": count, "of": self.last_step}
            self.recorder.event(TARGET_REACHED_EVENT, text, step=at.step, data=data)

    async def roll_back(self, reason: NothingFinite) -> None:
        """Go back to the newest checkpoint, and on from there otherwise than before. If that is where the run
        went back to before, it is taken for spoilt, and the one before it is next.

        Raises:
            NothingFinite: there is no checkpoint, or the run has gone back too often.
        """
        left, number, newest = self.state, self.state.rollbacks + 1, self.shelf.newest
        if newest is None or number > MAX_ROLLBACKS:
            raise reason
        if newest == self.returned_to:
            newest = self.shelf.leave_newest(left.step + 1) or newest
        await self.load(newest)
        self.returned_to = newest
        step = self.state.step
        self.state = replace(self.state_after_return(left), rollbacks=number, skipped_steps=0)
        self.between_steps = True
        await self.weights_changed()
        text = msg(
            "step {step}: {message}; back to the checkpoint of step {step2} (return "
            "{number} of {max_rollbacks} at most), {after_a_return}",
            step=left.step + 1,
            message=reason.message,
            step2=step,
            number=number,
            max_rollbacks=MAX_ROLLBACKS,
            after_a_return=self.after_a_return,
        )
        data = {"from": left.step + 1, "checkpoint": str(newest)}
        self.recorder.event("rolled_back", text, step=step, data=data)

    async def validate_if_due(self) -> None:
        at = self.state
        last_step = at.step if self.is_through else self.last_step
        due = validation_is_due(at.step, last_step=last_step, eval_steps=self.hyper.eval_steps)
        if self.validation is not None and due and not at.validated:
            await self.validate()

    async def save_if_due(self) -> None:
        last = self.is_through
        if self.state.skipped_steps and not last:
            return  # weights that may be the ones to go back from
        if last or save_is_due(self.hyper, self.state.step, epoch_ended=self.state.epoch_ended):
            await self.save(published=last)

    async def save(self, *, published: bool) -> None:
        """Save the last completed step, unless there is none or just that lies there already."""
        at = self.state
        if at.step == 0 or self.shelf.holds(at.step, at.validation, published=published):
            return
        took = Stopwatch()
        with took("timing/s/save"):
            await self.shelf.save(
                at.step,
                policy_version=self.policy_version,
                validation=at.validation,
                position={
                    **at.as_json(),
                    "published": published,
                    "policy_version": self.policy_version,
                    "job_id": self.job_id,
                    "metric_names": self.names.admitted,
                },
                published=published,
                may_fail=not published,
            )
        self.measured(at.step, **took.seconds)

    def measured(self, step: int, **values: float) -> None:
        """Record values of declared metrics; names that users chose are limited in number."""
        self.recorder.metrics(step, self.names.admit(values))

    def tell_notes(self) -> None:
        lines = [*notes(self.config, num_samples=len(self.training)), *self.training.notes]
        if self.validation is not None:
            lines += [*self.validation.notes, *self._overlap_notes(self.training, self.validation)]
        for line in lines:
            self.recorder.event("note", line)
