"""Job + machines -> a trained model: the whole flow, in order. Begin reading here, at `_Run.step`.

dataset -> rollout -> reward -> advantage -> batch -> update -> publish, then validate and save when due.
Between reward and advantage, dynamic sampling may ask for further prompts, and length may shape the rewards.

Only this file knows that order; each stage is a file with its name. `cli` hands in the machines, tests hand
in fakes. Everything runs on one event loop, and the learner works in a thread beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from strop.errors import CheckpointError, StropError
from strop.observability.metrics import NameGate
from strop.pipeline.advantage import step_advantages
from strop.pipeline.batch import build_batch, repeat
from strop.pipeline.counters import counted_since
from strop.pipeline.dataset import Dataset, Draw, overlap_notes
from strop.pipeline.dynamic_sampling import NothingToTrain, Sieve, shortage, sieve
from strop.pipeline.failures import (
    MAX_ROLLBACKS,
    NothingFinite,
    TooManyFailures,
    skipped_in_a_row,
    stop_if_too_many_failed,
    was_skipped,
)
from strop.pipeline.gae import gae_measures, with_gae
from strop.pipeline.job_notes import notes, total_steps
from strop.pipeline.measure import (
    batch_measures,
    distillation_measures,
    rollout_measures,
    timing_measures,
    validation_measures,
)
from strop.pipeline.overlong import length_measures, length_plan, masked_rollouts, shape_rewards
from strop.pipeline.ports import Critic, Machines
from strop.pipeline.position import saved_position, start_position
from strop.pipeline.publish import publish
from strop.pipeline.reward import reward, reward_plan
from strop.pipeline.rollout import Report, rollout, rollout_plan
from strop.pipeline.save import Shelf, kept_in, save_is_due
from strop.pipeline.stop import StopFlag, Stopped
from strop.pipeline.stopwatch import Stopwatch
from strop.pipeline.token_advantage import penalise, shape_advantages, shaped_measures
from strop.pipeline.validation import mean_at_1, validate, validation_is_due
from strop.schema.batch import Batch, Pack
from strop.schema.config import JobConfig
from strop.schema.job import JobStatus
from strop.schema.trajectory import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended. `validations` holds (step, mean@1); `checkpoint` is the newest, `best` the one that
    validated best, if any."""

    status: JobStatus
    steps: int
    checkpoint: Path | None
    best: Path | None
    validations: tuple[tuple[int, float | None], ...]
    sampled_tokens: int
    trained_tokens: int


async def train(
    config: JobConfig,
    machines: Machines,
    training: Dataset,
    validation: Dataset | None,
    *,
    job_id: str,
    folder: Path,
    stop: StopFlag,
    resume_from: Path | None = None,
) -> RunResult:
    """Run a job to its end or until `stop`, from its start or a checkpoint; checkpoints go below `folder`.

    Raises:
        TrainingError: too many rollouts failed, or the numbers went wrong.
        StropError: a machine refused. The steps that were complete are saved.
    Side effects:
        Records the job's status from RUNNING on, at last SUCCEEDED, CANCELED, or FAILED with the error
        raised.
    """
    recorder = machines.recorder
    recorder.status(JobStatus.RUNNING)
    try:
        run = _Run(config, machines, training, validation, job_id, folder, stop)
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
        sampled_tokens=run.position.sampled_tokens,
        trained_tokens=run.position.trained_tokens,
    )


class _Run:
    """A run's machines, its plans, and how far it has come."""

    def __init__(
        self,
        config: JobConfig,
        machines: Machines,
        training: Dataset,
        validation: Dataset | None,
        job_id: str,
        folder: Path,
        stop: StopFlag,
    ) -> None:
        self.config, self.hyper = config, config.hyper_parameters
        self.machines, self.recorder, self.stop = machines, machines.recorder, stop
        self.training, self.validation, self.job_id = training, validation, job_id
        self.rollouts, self.rewards = rollout_plan(config, job_id), reward_plan(config, job_id)
        training.steps_per_epoch(self.hyper.batch_size)  # refuses a dataset smaller than one step
        self.last_step = total_steps(self.hyper, len(training))
        self.position = start_position(training, self.hyper)
        self.shelf = Shelf(
            folder / "checkpoints",
            self.hyper.save_total_limit,
            machines.checkpoints,
            self.recorder,
            stop.wait,
        )
        self.lengths = length_plan(self.hyper)
        self.policy_version = 0
        self.names = NameGate()
        self.between_steps = True
        """Whether the learner's weights are those of `position`."""
        self.returned_to: Path | None = None

    @property
    def is_through(self) -> bool:
        """Whether the last step is done. Refills use up rows, so the epochs may end before the steps do."""
        return self.position.step >= self.last_step or self.position.epoch >= self.hyper.n_epochs

    async def start(self, resume_from: Path | None) -> JobStatus | None:
        """Tell the notes, load what is resumed, make the weights live. A status if nothing is left to do."""
        self.tell_notes()
        if resume_from is not None:
            saved = await self.load(resume_from)
            self.shelf.take_over(kept_in(saved), resume_from, step=self.position.step)
            self.recorder.event(
                "resumed", f"goes on after step {self.position.step}", step=self.position.step
            )
            if saved["published"] and self.is_through:
                text = f"already finished: all {self.position.step} steps are in {resume_from}"
                self.recorder.event("already_finished", text, step=self.position.step)
                return JobStatus.SUCCEEDED
        self.policy_version = await publish(self.machines.publisher)
        return None

    async def load(self, folder: Path) -> dict[str, Any]:
        """Put learner and position where the checkpoint was written. Returns what was saved beside them."""
        saved = await asyncio.to_thread(self.machines.checkpoints.load, folder)
        self.position = saved_position(saved, self.position)
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
            except StropError:
                if self.between_steps:
                    await self.save(published=False)
                raise

    async def go_on(self) -> JobStatus:
        """Step after step, validating and saving where it is due; validation also before the first."""
        while True:
            self.stop.check()
            await self.validate_if_due()
            await self.save_if_due()
            if self.is_through:
                return JobStatus.SUCCEEDED
            self.stop.check()
            await self.step()

    async def roll_back(self, reason: NothingFinite) -> None:
        """Go back to the newest checkpoint: weights, optimizer, position; the steps after it are taken anew.
        If that is where the run went back to before, it is taken for spoilt, and the one before it is next.

        Raises:
            NothingFinite: there is no checkpoint, or the run has gone back too often.
        """
        left, number, newest = self.position.step + 1, self.position.rollbacks + 1, self.shelf.newest
        if newest is None or number > MAX_ROLLBACKS:
            raise reason
        if newest == self.returned_to:
            newest = self.shelf.leave_newest(left) or newest
        await self.load(newest)
        self.returned_to = newest
        self.position = replace(self.position, rollbacks=number, skipped_steps=0)
        self.between_steps = True
        self.policy_version = await publish(self.machines.publisher)
        step = self.position.step
        text = (
            f"step {left}: {reason.message}; back to the checkpoint of step {step} "
            f"(return {number} of {MAX_ROLLBACKS} at most), with other samples from there on"
        )
        self.recorder.event("rolled_back", text, step=step, data={"from": left, "checkpoint": str(newest)})

    async def step(self) -> None:
        """One batch of prompts through the whole flow. Before the update none of it counts, after it all."""
        step, hyper, machines = self.position.step + 1, self.hyper, self.machines
        took, counts = Stopwatch(), machines.counters()
        with took("step"):
            found, draws = await self.sample(step, took)
            with took("adv"):
                sampled = shape_rewards(found.sampled, self.lengths)
                groups = found.kept_of(sampled)
                masked = masked_rollouts(groups, self.lengths)
                batch = build_batch(
                    step,
                    groups,
                    None if self.judged_by_token else step_advantages(hyper.method.advantage, groups),
                    mini_batch_size=hyper.mini_batch_size,
                    masked=masked,
                    scored=not self.config.distils,
                )
            self.recorder.trajectories(step, sampled, split="train")
            self.between_steps = False
            updates: dict[str, float] = {}
            penalties: list[list[float]] | None = None
            if hyper.kl_reward_coef > 0:
                with took("scores"):
                    scores = await asyncio.to_thread(machines.learner.score, batch)
                with took("adv"):
                    penalised = penalise(batch, scores, hyper)
                batch, penalties, updates = penalised.batch, penalised.penalties, penalised.metrics
            if machines.critic is not None:
                batch, critic_updates = await self.judge(batch, penalties, machines.critic, took)
                updates |= critic_updates
            elif penalties is not None or (hyper.method.by_token and not self.judged_by_token):
                with took("adv"):
                    batch = shape_advantages(batch, hyper, penalties)
            passes = repeat(batch, hyper.ppo_epochs)
            if taught := self.taught_packs(passes):
                with took("update_actor"):
                    self.recorder.progress(step, "update", 0, 1)
                    updates |= await asyncio.to_thread(machines.learner.update, passes)
                    self.recorder.progress(step, "update", 1, 1)
                with took("param_sync"):
                    self.policy_version = await publish(machines.publisher, replaces=self.policy_version)
            elif step > hyper.critic_warmup:
                text = "nothing to learn: in no group did two rollouts survive with different rewards"
                if machines.critic is not None:
                    text = "nothing to learn: every return was as far from its value as every other"
                self.recorder.event("step_without_gradient", text, step=step)
            if was_skipped(updates):
                text = "an update was skipped: its gradient is not finite"
                self.recorder.event("update_skipped", text, step=step)
            skipped_steps = skipped_in_a_row(self.position.skipped_steps, updates)
        self.position = self.position.after_step(draws[-1], sampled, taught, skipped_steps=skipped_steps)
        self.between_steps = True
        measures = {
            **rollout_measures(sampled, epoch=draws[0].epoch, max_prompt_length=hyper.max_prompt_length),
            **found.measures(),
            **self.judgement_measures(batch, sampled),
            **length_measures(groups, masked, self.lengths),
            **batch_measures(batch),
            **timing_measures(
                took.seconds, sampled, trained_tokens=sum(len(pack.token_ids) for pack in taught)
            ),
            **counted_since(counts, machines.counters()),
            **updates,  # last: a KL penalty changed the rewards
        }
        self.measured(step, **measures)

    @property
    def judged_by_token(self) -> bool:
        """Whether advantages come from a critic or a teacher, and no group needs a baseline."""
        return self.machines.critic is not None or self.config.distils

    def judgement_measures(self, batch: Batch, sampled: tuple[Group, ...]) -> dict[str, float]:
        """Advantages and what they were made from. A teacher's are made, and measured, in the learner."""
        if self.config.distils:
            return distillation_measures(sampled)
        return gae_measures(batch) if self.machines.critic is not None else shaped_measures(batch)

    async def judge(
        self, batch: Batch, penalties: list[list[float]] | None, critic: Critic, took: Stopwatch
    ) -> tuple[Batch, Mapping[str, float]]:
        """The batch with advantages by the critic's values, and what the critic's own update measured."""
        with took("values"):
            values = await asyncio.to_thread(critic.values, batch)
        with took("adv"):
            costs = None if penalties is None else [[-cost for cost in row] for row in penalties]
            batch = with_gae(batch, values, gamma=self.hyper.gamma, lam=self.hyper.lam, token_rewards=costs)
        with took("update_critic"):
            passes = repeat(batch, self.hyper.ppo_epochs)
            return batch, await asyncio.to_thread(critic.update, passes)

    async def sample(self, step: int, took: Stopwatch) -> tuple[Sieve, list[Draw]]:
        """Rollouts and rewards of a step: one batch of prompts, and what dynamic sampling asks for beyond it.

        Raises:
            TooManyFailures, NothingToTrain: the step cannot be trained on.
        """
        found, draws, missing = sieve(self.hyper), list[Draw](), self.hyper.batch_size
        epoch, index = self.position.epoch, self.position.index
        while missing and epoch < self.hyper.n_epochs:
            draw = self.training.draw(
                missing, batch_size=self.hyper.batch_size, seed=self.hyper.seed, epoch=epoch, index=index
            )
            draws.append(draw)
            epoch, index = draw.next_epoch, draw.next_index
            groups = await self.scored(step, draw, found.rounds, took)
            where = f"step {step}" if not found.rounds else f"step {step}, refill {found.rounds}"
            found.add(groups)
            try:
                stop_if_too_many_failed(groups, self.hyper.max_failure_rate, where=where)
            except TooManyFailures:
                self.recorder.trajectories(step, tuple(found.sampled), split="train")
                raise
            missing = found.missing
        try:
            short = shortage(found, step=step, data_is_through=epoch >= self.hyper.n_epochs)
        except NothingToTrain:
            self.recorder.trajectories(step, tuple(found.sampled), split="train")
            raise
        if short is not None:
            self.recorder.event("batch_not_full", short, step=step)
        return found, draws

    async def scored(self, step: int, draw: Draw, refill: int, took: Stopwatch) -> tuple[Group, ...]:
        """The rollouts of one draw with their rewards; ids tell the refills of a step apart."""
        machines = self.machines
        prefix = (f"s{step}" if not refill else f"s{step}x{refill}") + self.position.retake
        with took("rollout"):
            plan, report = replace(self.rollouts, prefix=prefix), self.report(step, "rollout")
            groups = await rollout(draw.samples, plan, machines.capture, machines.functions, report)
        self.stop.check()
        with took("reward"):
            groups = await reward(groups, self.rewards, machines.functions)
        self.stop.check()
        return groups

    def taught_packs(self, batch: Batch) -> list[Pack]:
        """The packs that the learner computes: those with an advantage, or all where KL loss or entropy pull;
        none while the critic alone is warmed up."""
        if batch.step <= self.hyper.critic_warmup:
            return []
        packs = [pack for mini in batch.mini_batches for pack in mini.packs]
        pulled = self.hyper.pulls_everywhere or self.config.distils
        return [pack for pack in packs if pulled or pack.has_advantage]

    async def validate_if_due(self) -> None:
        at = self.position
        last_step = at.step if self.is_through else self.last_step
        due = validation_is_due(at.step, last_step=last_step, eval_steps=self.hyper.eval_steps)
        if self.validation is None or not due or at.validated:
            return
        took, report = Stopwatch(), self.report(at.step, "validation")
        with took("timing/s/validation"):
            groups = await validate(
                self.validation, f"v{at.step}{at.retake}", self.rollouts, self.rewards, self.machines, report
            )
        self.recorder.trajectories(at.step, groups, split="validation")
        stop_if_too_many_failed(groups, self.hyper.max_failure_rate, where=f"validation after step {at.step}")
        measures = validation_measures(groups)
        self.measured(at.step, **measures, **took.seconds)
        self.position = at.after_validation(mean_at_1(measures), groups)

    async def save_if_due(self) -> None:
        last = self.is_through
        if self.position.skipped_steps and not last:
            return  # weights that may be the ones to go back from
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
                policy_version=self.policy_version,
                validation=at.validation,
                position={
                    **at.as_json(),
                    "published": published,
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

    def report(self, step: int, phase: str) -> Report:
        return lambda done, total: self.recorder.progress(step, phase, done, total)

    def tell_notes(self) -> None:
        lines = [*notes(self.config, num_samples=len(self.training)), *self.training.notes]
        if self.validation is not None:
            lines += [*self.validation.notes, *overlap_notes(self.training, self.validation)]
        for line in lines:
            self.recorder.event("note", line)
