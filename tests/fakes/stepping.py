"""An engine whose passes are counted out by the test: `Steps.of(engine)` before `start`, then `allow(n)`.

`from fakes.stepping import Steps`. Stands between the engine and its model.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from torch import Tensor

from strop.inference.local import Engine, LowRank
from strop.inference.local.adapter import Adapter
from strop.inference.local.attention import Attention
from strop.inference.local.batch import StepBatch
from strop.inference.local.forward import Forward

FOREVER = 10**9


class Steps:
    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self._changed = threading.Condition()
        self._allowed = 0
        self._entered = 0
        self.batches: list[StepBatch] = []
        self.error: BaseException | None = None

    @classmethod
    def of(cls, engine: Engine) -> Steps:
        steps = cls(engine._forward)
        engine._forward = steps
        return steps

    def allow(self, num_passes: int = FOREVER) -> None:
        with self._changed:
            self._allowed += num_passes
            self._changed.notify_all()

    def entered(self, num_passes: int) -> None:
        """Wait until so many passes have been asked for; the last of them may be waiting to be allowed."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._entered >= num_passes, timeout=20)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        self._forward.load(weights)

    def drop(self) -> None:
        self._forward.drop()

    def adapt(self, change: LowRank) -> Adapter:
        return self._forward.adapt(change)

    def logits(self, batch: StepBatch, attention: Attention) -> Tensor:
        with self._changed:
            self._entered += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._allowed > 0, timeout=20)
            self._allowed -= 1
        self.batches.append(batch)
        if self.error is not None:
            raise self.error
        return self._forward.logits(batch, attention)
