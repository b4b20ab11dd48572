"""New weights -> the engine of this machine, which makes room while they are trained.

`rl.loop` calls it through its `WeightSync` port. Trainer and engine share one memory here: this file knows
it, and nothing else does.
"""

from __future__ import annotations

from strop.inference.local.engine import Engine
from strop.inference.local.loading import tensors_of
from strop.schema.weights import WeightsRef


class SharedMemorySync:
    """The engine copies the weights in memory, or from a folder, and lets go of its copy while they change;
    one that `stays_awake` keeps its copy and samples on meanwhile."""

    def __init__(self, engine: Engine, *, stays_awake: bool = False) -> None:
        self._engine = engine
        self._stays_awake = stays_awake

    def push(self, weights: WeightsRef, *, version: int) -> int:
        self._engine.load_weights(tensors_of(weights), version=version)
        return self._engine.policy_version

    def sleep(self) -> None:
        if not self._stays_awake:
            self._engine.drop_weights()
