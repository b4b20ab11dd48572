"""The whole flow on fakes: a job, its rows, and a bench of machines of one process.

`from fakes.bench import Bench, job, rows`.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fakes.capture import FakeCapture
from fakes.critic import FakeCritic
from fakes.functions import FakeFunctions, last_digit, one_call_agent
from fakes.learner import FakeCheckpoints, FakeLearner
from fakes.recorder import FakeRecorder
from fakes.weight_sync import FakeWeightSync
from strop.config.job import JobConfig
from strop.data.dataset import Dataset
from strop.rl.interfaces import Backends
from strop.rl.loop import train
from strop.rl.stop import StopFlag
from strop.schema.sample import Sample


class QuickFlag(StopFlag):
    """Notes how long it was to wait, and lets no time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return self._asked


def rows(count: int, name: str = "train") -> Dataset:
    samples = tuple(
        Sample(
            sample_id=f"{name}{index}",
            row=index + 1,
            messages=[{"role": "user", "content": f"{name} {index}"}],
        )
        for index in range(count)
    )
    return Dataset(path=Path(f"{name}.jsonl"), samples=samples)


def job(*, functions=None, validation=True, **hyper) -> JobConfig:
    defaults = {"batch_size": 2, "n_rollouts": 4, "eval_steps": 2, "max_steps": 4, "save_strategy": "no"}
    defaults |= {"max_length": 64, "max_prompt_length": 32, "max_attempts": 2, "n_epochs": 9}
    code = {"classpath": "a.B"}
    datasets = [{"file_name": "train.jsonl"}]
    if validation:
        datasets.append({"type": "validation", "file_name": "validation.jsonl"})
    return JobConfig.model_validate(
        {
            "model": "m",
            "datasets": datasets,
            "functions": functions
            or [
                {"type": "rollout", "name": "agent", "fcmodel": code},
                {"type": "reward", "name": "right", "fcmodel": code},
            ],
            "training": {"hyper_parameters": defaults | hyper},
        }
    )


class Bench:
    """Fake machines of one process, and a stop flag that a log entry may set."""

    def __init__(self, folder: Path, *, stop_at=None, agent=None, right=last_digit) -> None:
        self.folder = folder
        self.stop = QuickFlag()
        self.stop_at = stop_at
        self.capture = FakeCapture()
        self.functions = FakeFunctions(agent=agent or one_call_agent(self.capture), right=right)
        self.learner = FakeLearner()
        self.checkpoints = FakeCheckpoints(self.learner)
        self.weight_sync = FakeWeightSync()
        self.recorder = FakeRecorder(on=self.on)
        self.counters = dict[str, float]
        self.critic: FakeCritic | None = None

    def on(self, entry: tuple[Any, ...]) -> None:
        if entry == self.stop_at:
            self.stop.set()

    async def train(self, config=None, training=None, validation=None, **options):
        config = config or job()
        backends = Backends(
            gateway=self.capture,
            functions=self.functions,
            learner=self.learner,
            checkpoints=self.checkpoints,
            weight_sync=self.weight_sync,
            recorder=self.recorder,
            counters=self.counters,
            critic=self.critic,
        )
        if validation is None and len(config.datasets) == 2:
            validation = rows(3, "held")
        return await train(
            config,
            backends,
            training or rows(8),
            validation,
            job_id="job",
            folder=self.folder,
            stop=self.stop,
            **options,
        )

    @property
    def phases(self) -> list[str]:
        """What was recorded, without progress and notes, in words."""
        return [
            " ".join(str(word) for word in entry)
            for entry in self.recorder.log
            if entry[0] != "progress" and entry != ("event", "note")
        ]


CLOCKED = (
    "timing/",
    "perf/",
    "fully_async/processing_time/",
    "fully_async/trainer/",
    "fully_async/rollouter/",
)
"""Metrics that no two runs share."""


def run_facts(*benches: Bench):
    """All that two runs must agree in: what was sampled, learned, published and recorded."""
    opened = [key for bench in benches for key in bench.capture.opened]
    sampling = {key: value for bench in benches for key, value in bench.capture.sampling.items()}
    values = {
        (step, name): value
        for bench in benches
        for step, names in bench.recorder.values.items()
        for name, value in names.items()
        if not name.startswith(CLOCKED)
    }
    return SimpleNamespace(
        opened=opened,
        sampling=sampling,
        values=values,
        batches=[batch for bench in benches for batch in bench.learner.batches],
        weights=benches[-1].learner.weights,
    )
