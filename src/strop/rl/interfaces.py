"""The backends the flow needs, as it sees them. `cli` hands in real ones, tests hand in fakes.

Imports only the schema: whatever satisfies these Protocols never has to import this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from strop.schema.batch import Batch, ForwardResult, LossNormalizer, OptimStep, Pack, Score
from strop.schema.function import FunctionInput, ModelResource
from strop.schema.job import JobStatus
from strop.schema.reply import FunctionReply
from strop.schema.sampling import Completion, SamplingParams
from strop.schema.trajectory import Group, Turn
from strop.schema.weights import WeightsRef

Progress = Callable[[int, int], None]
"""Told (done, total) of some work; what it raises ends the work."""


class RolloutGateway(Protocol):
    """The gateway: an OpenAI-compatible address for each attempt and the memory of what was sampled there."""

    def open(
        self, rollout_id: str, attempt_id: str, *, sampling: SamplingParams, training: bool
    ) -> ModelResource:
        """Start capturing. `sampling` is what calls get that set nothing themselves, `max_tokens` included.

        `sampling.seed` is the attempt's: each of its calls draws a seed of its own from it by its order, so
        that several calls never share their noise and a resumed run samples what the uninterrupted one did.
        While `training`, calls that would sample from another distribution than the loss assumes (top-p,
        top-k, temperature 0) are answered 400.
        """
        ...

    async def chat(
        self,
        rollout_id: str,
        attempt_id: str,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
    ) -> dict[str, Any]:
        """Sample one assistant message without HTTP; captured like any other call."""
        ...

    def close(self, rollout_id: str, attempt_id: str) -> tuple[Turn, ...]:
        """Seal the attempt and give its turns in order of completion. Later calls to its address get 409."""
        ...

    def prompt_length(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> int:
        """Tokens of the rendered prompt, generation prompt included."""
        ...


class Generation(Protocol):
    """One request on its way through a sampler."""

    async def result(self) -> Completion:
        """Wait for the end: ids, and for each its logprob and the policy version it was sampled from."""
        ...

    def abort(self) -> None:
        """Stop at the next step; the result is what was sampled. Harmless when already finished."""
        ...


class Sampler(Protocol):
    """Token ids in; ids, logprobs and policy versions out. The gateway puts chat in front of one."""

    @property
    def repeatable(self) -> bool:
        """Whether what is sampled for a request depends, bit for bit, on the request and the weights
        alone."""
        ...

    @property
    def policy_version(self) -> int:
        """Version of the weights that the next token will be sampled from."""
        ...

    def submit(self, prompt_ids: Sequence[int], params: SamplingParams) -> Generation:
        """Queue a prompt; returns at once."""
        ...


class FunctionRunner(Protocol):
    """Runs user functions in their workers. Never raises for what a function did: the reply says it."""

    async def call(self, name: str, payload: FunctionInput) -> FunctionReply: ...


class Scorer(Protocol):
    """A model that is asked and never trained, such as a teacher."""

    def score(self, packs: Sequence[Pack]) -> ForwardResult:
        """Its logprob of each sampled token, NaN where it has none; no gradient."""
        ...


class Trainable(Protocol):
    """Weights with an optimizer: gradients are summed by `forward_backward` until `optim_step` uses them.

    The packs of one call may be a part of an update. `normalizer` counts the whole of it, so that the parts'
    gradients and metrics add up, also over processes.
    """

    def forward_backward(self, packs: Sequence[Pack], normalizer: LossNormalizer) -> ForwardResult: ...

    def optim_step(self, learning_rate: float, *, max_grad_norm: float) -> OptimStep:
        """Clip the summed gradient to a global norm and step. One that is not finite changes nothing."""
        ...

    def save(self, folder: Path) -> None:
        """Write what it needs to go on exactly below `folder`, which the caller makes atomic."""
        ...

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote."""
        ...


class PolicyTrainer(Scorer, Trainable, Protocol):
    """The trainable weights of a run. What an update is, `rl.update` says for every implementation.

    `forward_backward` computes the job's loss: rows without old logprobs of their own are compared with this
    very pass, and those that bring reference or teacher logprobs are held against them.
    """

    @property
    def policy_version(self) -> int:
        """Optimizer steps applied since the run, resumed or not, began."""
        ...

    def score_reference(self, packs: Sequence[Pack]) -> ForwardResult:
        """As `score`, under the frozen start weights; only where the job keeps a reference."""
        ...

    def learned(self) -> bool:
        """Whether any weight differs from what it was when the run, resumed or not, began."""
        ...

    def export(self) -> WeightsRef:
        """The weights after the last step, for whoever samples from them."""
        ...


class ValueTrainer(Scorer, Trainable, Protocol):
    """A critic: `score` gives the value of the context of each sampled token, `forward_backward` the gradient
    towards the returns that the packs bring."""


class RowTrainer(Trainable, Protocol):
    """The trainable weights of a run that learns from rows."""

    def remember_reference(self, packs: Sequence[Pack], report: Progress | None) -> None:
        """Compute what the start weights think of compared answers; before any step and any load."""
        ...

    def evaluate(
        self, packs: Sequence[Pack], normalizer: LossNormalizer, report: Progress | None
    ) -> ForwardResult:
        """The loss of `packs` and its parts, without a gradient."""
        ...

    def learned(self) -> bool:
        """As a `PolicyTrainer`."""
        ...


class Learner(Protocol):
    """What the loop asks of the policy: `rl.update.PolicyLearner`, over any `PolicyTrainer`."""

    def score(self, batch: Batch) -> list[Score]:
        """Every sequence of the batch under the weights of the step's start, in the order of its packs.

        Called before `update` where advantages depend on it: a KL penalty in the reward, a critic.
        """
        ...

    def update(self, batch: Batch) -> Mapping[str, float]:
        """Run the optimizer updates of one step; metrics under their registry names."""
        ...

    def learned(self) -> bool:
        """Whether any weight differs from what it was when the run, resumed or not, began."""
        ...

    @property
    def policy_version(self) -> int:
        """Optimizer steps applied; after a resume it counts on."""
        ...

    def export(self) -> WeightsRef:
        """The weights after the last update, for `WeightSync.push`."""
        ...


class OfflineLearner(Protocol):
    """What the offline loop asks: `rl.offline.RowLearner`, over any `RowTrainer`."""

    def remember_reference(self, packs: Sequence[Pack], report: Progress) -> None: ...

    def update(self, batch: Batch) -> Mapping[str, float]: ...

    def measure(self, packs: Sequence[Pack], report: Progress) -> Mapping[str, float]: ...

    def learned(self) -> bool: ...


class Critic(Protocol):
    """What the loop asks of a critic: `rl.update.CriticLearner`, over any `ValueTrainer`."""

    def values(self, batch: Batch) -> list[list[float]]:
        """One list a sequence, in the batch's order: the value of the context of each sampled token."""
        ...

    def update(self, batch: Batch) -> Mapping[str, float]:
        """Move the values towards the batch's returns; metrics under their registry names."""
        ...


class CheckpointWriter(Protocol):
    """Writes and reads checkpoints of the learner it was made with, and of its critic, each whole or not
    there at all."""

    def write(self, folder: Path, *, step: int, policy_version: int, position: dict[str, Any]) -> Path:
        """Write learner, tokenizer, `position` and manifest; the checkpoint's own `folder` appears at once.

        A folder of that name from an earlier run is replaced. `position` is JSON and belongs to the loop.
        Returns the folder.
        """
        ...

    def load(self, folder: Path, belongs: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
        """Verify the manifest, let `belongs` refuse the position, load the learner, give `position` back as
        it was written."""
        ...


class WeightSync(Protocol):
    """Makes the trainer's weights the ones that are sampled from. It alone knows whether sampler and trainer
    share memory, and so whether one must sleep while the other works."""

    def push(self, weights: WeightsRef, *, version: int) -> int:
        """Wait until the sampler has these weights; returns the policy version that is live then.

        Nothing computed with older weights is used again; a sequence under way goes on with the new ones.
        """
        ...

    def sleep(self) -> None:
        """The trainer is about to work until the next `push`: whoever shares its memory makes room, and
        samples nothing meanwhile."""
        ...


class Recorder(Protocol):
    """Where everything that happened is written. Calls return quickly and never raise for a slow reader."""

    def status(self, status: JobStatus, *, error: str | None = None) -> None: ...

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Raises:
        StoppedByDiagnosis: whoever listens has seen enough; the run ends after this step.
        """
        ...

    def trajectories(self, step: int, groups: tuple[Group, ...], *, split: str) -> None:
        """`split` is `train` or `validation`."""
        ...

    def checkpoint(
        self,
        step: int,
        folder: Path,
        *,
        policy_version: int,
        validation: float | None,
        published: bool,
        best: bool,
    ) -> None:
        """A checkpoint is whole on disk. `best`: no checkpoint of the run was validated better so far."""
        ...

    def checkpoint_removed(self, folder: Path) -> None:
        """The folder is about to go, or was found gone: no list may name it any more."""
        ...

    def event(
        self, kind: str, message: str, *, step: int | None = None, data: Mapping[str, Any] | None = None
    ) -> None: ...

    def progress(self, step: int, phase: str, done: int, total: int) -> None:
        """How far the current phase (`rollout`, `validation`, `update`) of a step is, for who looks on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """All the ports of one run; a critic where the algorithm has one. `counters` reads what they have
    counted so far, by the names in `rl.metrics`."""

    gateway: RolloutGateway
    functions: FunctionRunner
    learner: Learner
    checkpoints: CheckpointWriter
    weight_sync: WeightSync
    recorder: Recorder
    critic: Critic | None = None
    counters: Callable[[], Mapping[str, float]] = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineBackends:
    """The ports of a run that samples nothing."""

    learner: OfflineLearner
    checkpoints: CheckpointWriter
    recorder: Recorder
