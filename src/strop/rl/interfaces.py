"""The machines the flow needs, as it sees them. `cli` hands in real ones, tests hand in fakes.

Imports only the schema: whatever satisfies these Protocols never has to import this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from strop.schema.batch import Batch, Pack, Score
from strop.schema.function import FunctionInput, ModelResource
from strop.schema.job import JobStatus
from strop.schema.reply import FunctionReply
from strop.schema.sampling import SamplingParams
from strop.schema.trajectory import Group, Turn


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


class FunctionRunner(Protocol):
    """Runs user functions in their workers. Never raises for what a function did: the reply says it."""

    async def call(self, name: str, payload: FunctionInput) -> FunctionReply: ...


class Learner(Protocol):
    """Holds the trainable weights."""

    def score(self, batch: Batch) -> list[Score]:
        """Every sequence of the batch under the weights of the step's start, in the order of its packs.

        Called before `update` where advantages depend on it: a KL penalty in the reward, a critic.
        """
        ...

    def update(self, batch: Batch) -> Mapping[str, float]:
        """Run the optimizer updates of one step; metrics under their registry names."""
        ...

    def save(self, folder: Path) -> None:
        """Write weights, optimizer, schedule and RNG below `folder`, which the caller makes atomic."""
        ...

    def load(self, folder: Path) -> None: ...

    def learned(self) -> bool:
        """Whether any weight is another one than when the run, resumed or not, began."""
        ...


class OfflineLearner(Learner, Protocol):
    """A learner of rows instead of rollouts."""

    def remember_reference(self, packs: Sequence[Pack], report: Callable[[int, int], None]) -> None:
        """Compute what the start weights think of compared answers; before any update and any load.

        `report` is told (done, total) packs on the way; what it raises ends the work.
        """
        ...

    def measure(self, packs: Sequence[Pack], report: Callable[[int, int], None]) -> Mapping[str, float]:
        """The loss and its parts on `packs`, without learning from them; `report` as above."""
        ...


class Critic(Protocol):
    """The value model of a run that has one. Saved and loaded with the learner, as one checkpoint."""

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
    """Makes the learner's weights the ones the engine samples from."""

    def publish(self) -> int:
        """Returns the policy version now live, which is the learner's own: after a resume it counts on."""
        ...

    def withdraw(self) -> None:
        """Nobody samples until the next `publish`: what the engine holds may go, and the learner have its
        memory."""
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
    """All the ports of one run; a critic where the algorithm has one. `counters` reads what the machines have
    counted so far, by the names in `rl.counters`."""

    capture: RolloutGateway
    functions: FunctionRunner
    learner: Learner
    checkpoints: CheckpointWriter
    publisher: WeightSync
    recorder: Recorder
    critic: Critic | None = None
    counters: Callable[[], Mapping[str, float]] = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineBackends:
    """The ports of a run that samples nothing."""

    learner: OfflineLearner
    checkpoints: CheckpointWriter
    recorder: Recorder
