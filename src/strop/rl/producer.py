"""Dataset -> the scored groups of one step after another: the producing half of a run.

Rollout and reward of a batch of prompts, and of those that dynamic sampling asks for beyond it. `rl.loop`
takes a step's groups from here and learns from them. With `max_staleness` 0 a step is sampled when it is
asked for, with the newest weights; beyond it, so many steps are sampled ahead while others are learned from.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from strop.config.job import JobConfig
from strop.data.dataset import Dataset, Draw
from strop.locales import msg
from strop.rl.failures import TooManyFailures, stop_if_too_many_failed
from strop.rl.filtering import GroupFilter, NothingToTrain, group_filter, shortage
from strop.rl.interfaces import FunctionRunner, Recorder, RolloutGateway
from strop.rl.reward import reward, reward_plan
from strop.rl.rollout import rollout, rollout_plan
from strop.rl.stop import StopFlag
from strop.rl.stopwatch import Stopwatch
from strop.rl.train_state import TrainState
from strop.schema.trajectory import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The step to sample and where it draws from. `retake` ends the ids of its rollouts."""

    step: int
    epoch: int
    index: int
    retake: str

    @classmethod
    def after(cls, state: TrainState) -> Cursor:
        return cls(step=state.step + 1, epoch=state.epoch, index=state.index, retake=state.retake)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledStep:
    """What a step trains on; `seconds` of sampling and scoring it, by phase."""

    found: GroupFilter
    draws: list[Draw]
    seconds: Mapping[str, float]

    def next(self, cursor: Cursor) -> Cursor:
        """Where the step after the one at `cursor`, which this is, begins."""
        last = self.draws[-1]
        return replace(cursor, step=cursor.step + 1, epoch=last.next_epoch, index=last.next_index)


Ahead = asyncio.Task["tuple[Cursor, SampledStep] | None"]
"""A step that is sampled before it is asked for; None beyond the last one."""


class GroupProducer:
    """Samples and scores the steps of a run, in order, up to `max_staleness` of them ahead of the learner.

    A step that is sampled ahead began with weights at most `max_staleness` steps older than those it is
    learned with; what is under way when new weights arrive goes on with them. Every token carries its policy
    version.
    """

    def __init__(
        self,
        config: JobConfig,
        training: Dataset,
        *,
        gateway: RolloutGateway,
        functions: FunctionRunner,
        recorder: Recorder,
        stop: StopFlag,
        job_id: str,
        last_step: int,
    ) -> None:
        self.rollouts, self.rewards = rollout_plan(config, job_id), reward_plan(config, job_id)
        self._hyper = config.hyper_parameters
        self._training = training
        self._gateway, self._functions = gateway, functions
        self._recorder, self._stop = recorder, stop
        self._last_step = last_step
        self._ahead: deque[Ahead] = deque()
        self._head: Cursor | None = None
        """Where the first of the steps ahead begins."""

    async def take(self, cursor: Cursor) -> SampledStep:
        """The groups of the step at `cursor`, sampled now or ahead of time; then those beyond it are begun.

        Raises:
            TooManyFailures, NothingToTrain: the step cannot be trained on.
            Stopped: the run is asked to end.
        """
        if self._hyper.max_staleness == 0:
            return await self._sample(cursor)
        if self._head != cursor:  # the first step, or one after a return to a checkpoint
            await self.close()
            self._ahead.append(asyncio.create_task(self._sampled(cursor)))
        taken = await self._ahead[0]
        assert taken is not None, "no step is taken beyond the last one"
        _, sampled = taken
        self._head = sampled.next(cursor)
        while len(self._ahead) <= self._hyper.max_staleness:
            self._ahead.append(asyncio.create_task(self._after(self._ahead[-1])))
        self._ahead.popleft()
        return sampled

    async def close(self) -> None:
        """Give up what is sampled ahead."""
        tasks, self._head = list(self._ahead), None
        self._ahead.clear()
        for task in reversed(tasks):  # each waits for the one before it
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _sampled(self, cursor: Cursor) -> tuple[Cursor, SampledStep]:
        sampled = await self._sample(cursor)
        return sampled.next(cursor), sampled

    async def _after(self, before: Ahead) -> tuple[Cursor, SampledStep] | None:
        """The step after the one that `before` samples."""
        done = await before
        if done is None or done[0].step > self._last_step or done[0].epoch >= self._hyper.n_epochs:
            return None
        return await self._sampled(done[0])

    async def _sample(self, cursor: Cursor) -> SampledStep:
        """Rollouts and rewards of a step: one batch of prompts, and what dynamic sampling asks for beyond
        it."""
        step, hyper, took = cursor.step, self._hyper, Stopwatch()
        found, draws, missing = group_filter(hyper), list[Draw](), hyper.batch_size
        epoch, index = cursor.epoch, cursor.index
        while missing and epoch < hyper.n_epochs:
            draw = self._training.draw(
                missing, batch_size=hyper.batch_size, seed=hyper.seed, epoch=epoch, index=index
            )
            draws.append(draw)
            epoch, index = draw.next_epoch, draw.next_index
            groups = await self._scored(cursor, draw, found.rounds, took)
            where = msg("step {step}", step=step)
            if found.rounds:
                where += msg(", refill {rounds}", rounds=found.rounds)
            found.add(groups)
            try:
                stop_if_too_many_failed(groups, hyper.max_failure_rate, where=where)
            except TooManyFailures:
                self._recorder.trajectories(step, tuple(found.sampled), split="train")
                raise
            missing = found.missing
        try:
            short = shortage(found, step=step, data_is_through=epoch >= hyper.n_epochs)
        except NothingToTrain:
            self._recorder.trajectories(step, tuple(found.sampled), split="train")
            raise
        if short is not None:
            self._recorder.event("batch_not_full", short, step=step)
        return SampledStep(found=found, draws=draws, seconds=took.seconds)

    async def _scored(self, cursor: Cursor, draw: Draw, refill: int, took: Stopwatch) -> tuple[Group, ...]:
        """The rollouts of one draw with their rewards; ids tell the refills of a step apart."""
        step = cursor.step
        prefix = (f"s{step}" if not refill else f"s{step}x{refill}") + cursor.retake

        def report(done: int, total: int) -> None:
            self._recorder.progress(step, "rollout", done, total)

        with took("rollout"):
            plan = replace(self.rollouts, prefix=prefix)
            work = rollout(draw.samples, plan, self._gateway, self._functions, report)
            groups = await self._stop.cutting(work)
        with took("reward"):
            return await self._stop.cutting(reward(groups, self.rewards, self._functions))
