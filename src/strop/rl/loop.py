"""Job + backends -> a trained model: the whole flow, in order. Begin reading here, at `_Run.step`.

dataset -> rollout -> reward -> advantage -> batch -> update -> publish, then validate and save when due.
`rl.producer` goes as far as the rewards, at most `max_staleness` steps ahead; a step consumes what it gives.

Only these two know that order; each stage is a file with its name. `cli` hands in the backends, tests hand
in fakes. Everything runs on one event loop, and the learner works in a thread beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from strop.config.job import JobConfig
from strop.data.dataset import Dataset, overlap_notes
from strop.errors import TrainingError
from strop.locales import msg
from strop.rl.advantage import step_advantages
from strop.rl.batch import build_batch, repeat
from strop.rl.failures import (
    SKIPPED,
    skipped_in_a_row,
    stop_if_too_many_failed,
    was_skipped,
)
from strop.rl.gae import gae_metrics, with_gae
from strop.rl.interfaces import Backends, Critic
from strop.rl.metrics import (
    batch_metrics,
    counted_since,
    distillation_metrics,
    rollout_metrics,
    timing_metrics,
    validation_metrics,
    version_metrics,
)
from strop.rl.overlong import length_metrics, length_plan, masked_rollouts, shape_rewards
from strop.rl.producer import Cursor, GroupProducer
from strop.rl.repeat_failures import dropout_text, lost_again
from strop.rl.rollout import Report
from strop.rl.stop import StopFlag
from strop.rl.stopwatch import Stopwatch
from strop.rl.token_advantage import penalise, shape_advantages, shaped_metrics
from strop.rl.train_state import TrainState, start_state
from strop.rl.trainer import RunResult, Trainer, run_to_its_end
from strop.rl.validation import mean_at_1, validate
from strop.schema.batch import Batch, Pack
from strop.schema.sample import Sample
from strop.schema.trajectory import Group


async def train(
    config: JobConfig,
    backends: Backends,
    training: Dataset,
    validation: Dataset | None,
    *,
    job_id: str,
    folder: Path,
    stop: StopFlag,
    resume_from: Path | None = None,
    code: Mapping[str, str] = MappingProxyType({}),
    accept_changes: bool = False,
) -> RunResult:
    """Run a job to its end or until `stop`, from its start or a checkpoint; checkpoints go below `folder`.

    `code` is the hash of each function's code: with other code a run does not go on, unless `accept_changes`.

    Raises:
        TrainingError: too many rollouts failed, the numbers went wrong, or nothing was learned.
        StropError: a backend refused. The steps that were complete are saved.
    Side effects:
        Records the job's status from RUNNING on, at last SUCCEEDED, CANCELED, or FAILED with the error
        raised.
    """

    def begin() -> _Run:
        start = start_state(config, training, validation, code)
        return _Run(config, backends, training, validation, start, job_id, folder, stop, accept_changes)

    return await run_to_its_end(begin, backends.recorder, resume_from=resume_from)


class _Run(Trainer[Sample]):
    """A run's backends and plans, and what one of its steps is."""

    after_a_return = msg("with other samples from there on")

    def __init__(
        self,
        config: JobConfig,
        backends: Backends,
        training: Dataset,
        validation: Dataset | None,
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
        self.backends = backends
        self.producer = GroupProducer(
            config,
            training,
            gateway=backends.gateway,
            functions=backends.functions,
            recorder=backends.recorder,
            stop=stop,
            job_id=job_id,
            last_step=self.last_step,
        )
        self.lengths = length_plan(self.hyper)

    async def close(self) -> None:
        await self.producer.close()

    async def weights_changed(self) -> None:
        self.policy_version = await self.push_weights()

    async def push_weights(self, *, replaces: int | None = None) -> int:
        """Hand the learner's weights to the sampler and learn which version is live.

        Raises:
            TrainingError: the live version is older than `replaces`, so that rollouts would come from weights
                that the learner has left.
        """
        learner = self.backends.learner

        def push() -> int:
            return self.backends.weight_sync.push(learner.export(), version=learner.policy_version)

        version = await asyncio.to_thread(push)
        if replaces is not None and version < replaces:
            raise TrainingError(
                msg(
                    "the engine went back from policy version {replaces} to {version}: new "
                    "weights did not arrive",
                    replaces=replaces,
                    version=version,
                ),
                fix=msg("restart from the last checkpoint"),
            )
        return version

    def state_after_return(self, left: TrainState) -> TrainState:
        """That of the checkpoint: the steps after it are taken anew, with other ids and so other seeds."""
        return self.state

    async def step(self) -> None:
        """One batch of prompts through the whole flow. Before the update none of it counts, after it all."""
        step, hyper, backends = self.state.step + 1, self.hyper, self.backends
        took, counts = Stopwatch(), backends.counters()
        with took("step"):
            waited = Stopwatch()
            with waited("batch"):
                taken = await self.producer.take(Cursor.after(self.state))
            found, draws = taken.found, taken.draws
            took.add(taken.seconds)
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
            self.between_steps, version = False, self.policy_version
            updates: dict[str, float] = {}
            penalties: list[list[float]] | None = None
            if hyper.kl_reward_coef > 0:
                with took("scores"):
                    scores = await asyncio.to_thread(backends.learner.score, batch)
                with took("adv"):
                    penalised = penalise(batch, scores, hyper)
                batch, penalties, updates = penalised.batch, penalised.penalties, penalised.metrics
            if backends.critic is not None:
                with took("param_sync"):
                    await asyncio.to_thread(backends.weight_sync.sleep)
                batch, critic_updates = await self.judge(batch, penalties, backends.critic, took)
                updates |= critic_updates
            elif penalties is not None or (hyper.method.by_token and not self.judged_by_token):
                with took("adv"):
                    batch = shape_advantages(batch, hyper, penalties)
            passes = repeat(batch, hyper.ppo_epochs)
            if taught := self.taught_packs(passes):
                with took("param_sync"):
                    await asyncio.to_thread(backends.weight_sync.sleep)
                with took("update_actor"):
                    self.recorder.progress(step, "update", 0, 1)
                    updates |= await asyncio.to_thread(backends.learner.update, passes)
                    self.recorder.progress(step, "update", 1, 1)
            elif step > hyper.critic_warmup:
                text = msg("nothing to learn: in no group did two rollouts survive with different rewards")
                if backends.critic is not None:
                    text = msg("nothing to learn: every return was as far from its value as every other")
                self.recorder.event("step_without_gradient", text, step=step)
            if taught or backends.critic is not None:
                with took("param_sync"):
                    self.policy_version = await self.push_weights(replaces=self.policy_version)
            if was_skipped(updates):
                text = SKIPPED
                self.recorder.event("update_skipped", text, step=step)
            skipped_steps = skipped_in_a_row(self.state.skipped_steps, updates)
        idle = not (self.config.distils or any(pack.has_advantage for pack in taught))
        self.state = self.state.after_step(draws[-1], sampled, taught, idle=idle, skipped_steps=skipped_steps)
        self.between_steps = True
        lost = dict(self.state.lost)
        if (dropped := dropout_text(lost, sampled)) is not None:
            self.recorder.event("samples_dropped", dropped, step=step)
        metrics = {
            "group/dropped_again": float(lost_again(lost)),
            "fully_async/count/total_generated_samples": float(self.state.sampled_groups),
            **rollout_metrics(sampled, epoch=draws[0].epoch, max_prompt_length=hyper.max_prompt_length),
            **(version_metrics(sampled, learned_at=version) if hyper.max_staleness else {}),
            **found.metrics(),
            **self.judgement_metrics(batch, sampled),
            **length_metrics(groups, masked, self.lengths),
            **batch_metrics(batch),
            **timing_metrics(
                took.seconds,
                sampled,
                trained_tokens=sum(len(pack.token_ids) for pack in taught),
                waited_s=waited.seconds["batch"] if hyper.max_staleness else None,
            ),
            **counted_since(counts, backends.counters()),
            **updates,  # last: a KL penalty changed the rewards
        }
        self.measured(step, **metrics)

    @property
    def judged_by_token(self) -> bool:
        """Whether advantages come from a critic or a teacher, and no group needs a baseline."""
        return self.backends.critic is not None or self.config.distils

    def judgement_metrics(self, batch: Batch, sampled: tuple[Group, ...]) -> dict[str, float]:
        """Advantages and what they were made from. A teacher's are made, and measured, in the learner."""
        if self.config.distils:
            return distillation_metrics(sampled)
        return gae_metrics(batch) if self.backends.critic is not None else shaped_metrics(batch)

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

    def taught_packs(self, batch: Batch) -> list[Pack]:
        """The packs that the learner computes: those with an advantage, or all where KL loss or entropy pull;
        none while the critic alone is warmed up."""
        if batch.step <= self.hyper.critic_warmup:
            return []
        packs = [pack for mini in batch.mini_batches for pack in mini.packs]
        pulled = self.hyper.pulls_everywhere or self.config.distils
        return [pack for pack in packs if pulled or pack.has_advantage]

    async def validate(self) -> None:
        at, rows = self.state, self.validation
        assert rows is not None
        took, report = Stopwatch(), self.report(at.step, "validation")
        with took("timing/s/validation"):
            groups = await self.stop.cutting(
                validate(
                    rows,
                    f"v{at.step}{at.retake}",
                    self.producer.rollouts,
                    self.producer.rewards,
                    self.backends,
                    report,
                )
            )
        self.recorder.trajectories(at.step, groups, split="validation")
        stop_if_too_many_failed(
            groups,
            self.hyper.max_failure_rate,
            where=msg("validation after step {step}", step=at.step),
        )
        metrics = validation_metrics(groups)
        self.measured(at.step, **metrics, **took.seconds)
        self.state = at.after_validation(mean_at_1(metrics), groups)

    def report(self, step: int, phase: str) -> Report:
        return lambda done, total: self.recorder.progress(step, phase, done, total)
