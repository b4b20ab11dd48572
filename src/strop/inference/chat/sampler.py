"""The engine as the gateway sees it: ids in, ids out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from strop.schema.sampling import Completion, CompletionChunk, SamplingParams


class Generation(Protocol):
    """One request on its way through the engine."""

    def chunks(self) -> AsyncIterator[CompletionChunk]:
        """Yield as the engine steps; ends after the chunk with a finish reason. Iterate once."""
        ...

    async def result(self) -> Completion:
        """Wait for the end. Raises `EngineError` if the engine could not finish it."""
        ...

    def abort(self) -> None:
        """Leave the batch at the next step. Harmless when already finished."""
        ...


class Sampler(Protocol):
    """`inference.local.Engine` is one. `submit` is called in the event loop's thread and returns at once."""

    def submit(self, prompt_ids: Sequence[int], params: SamplingParams) -> Generation: ...
