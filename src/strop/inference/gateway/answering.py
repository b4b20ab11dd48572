"""Prompt ids + how to sample each choice -> the choices' completions: the generations of one chat call.

A captured call (`gateway.calls`) and a served one (`serving.calls`) run theirs through one of these. Lives in
one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from strop.errors import EngineError
from strop.inference.gateway.sampler import Generation, Sampler
from strop.schema.sampling import Completion, CompletionChunk, FinishReason, SamplingParams


class Answering:
    """`start` submits all choices; `chunks` runs them to their end; `leave` aborts whatever is left.

    `interrupt` ends them from outside: `chunks` then raises the reason, which stays in `interruption`.

    Units:
        latencies_s: seconds from the start to the end of each choice.
    """

    def __init__(self, sampler: Sampler, *, streams: bool) -> None:
        self.completions: dict[int, Completion] = {}
        self.latencies_s: dict[int, float] = {}
        self.interruption: Exception | None = None
        self._sampler = sampler
        self._streams = streams
        self._generations: list[Generation] = []
        self._pumps: list[asyncio.Task[None]] = []
        self._events: asyncio.Queue[tuple[int, CompletionChunk | None] | BaseException] = asyncio.Queue()
        self._started = 0.0

    def start(self, prompt_ids: Sequence[int], choices: Sequence[SamplingParams]) -> None:
        """Submit one generation a choice. After an error call `leave`."""
        self._started = time.perf_counter()
        for index, params in enumerate(choices):
            generation = self._sampler.submit(prompt_ids, params)
            self._generations.append(generation)
            pump = asyncio.create_task(self._pump(index, generation))
            pump.add_done_callback(self._pumped)
            self._pumps.append(pump)

    def interrupt(self, reason: Exception) -> None:
        """End with `reason` instead of completions; of several the first stands."""
        if self.interruption is not None:
            return
        self.interruption = reason
        for generation in self._generations:
            generation.abort()
        self._events.put_nowait(reason)

    async def chunks(self) -> AsyncIterator[tuple[int, CompletionChunk]]:
        """Run to the end of all choices, yielding (choice, what became certain) where the call streams.

        Raises:
            EngineError: the engine gave up on a choice; the others are not kept either.
            Exception: whatever `interrupt` was given.
        """
        running = len(self._generations)
        while running:
            event = await self._events.get()
            if isinstance(event, BaseException):
                raise event
            index, chunk = event
            if chunk is None:
                running -= 1
            else:
                yield index, chunk

    def leave(self) -> None:
        for generation in self._generations:
            generation.abort()
        for pump in self._pumps:
            pump.cancel()

    async def _pump(self, index: int, generation: Generation) -> None:
        if self._streams:
            async for chunk in generation.chunks():
                self._events.put_nowait((index, chunk))
        sampled = await generation.result()
        if sampled.finish_reason is FinishReason.ABORT or not sampled.token_ids:
            raise EngineError("the engine ended a generation before it was finished")
        self.completions[index] = sampled
        self.latencies_s[index] = time.perf_counter() - self._started
        self._events.put_nowait((index, None))

    def _pumped(self, pump: asyncio.Task[None]) -> None:
        if not pump.cancelled() and (error := pump.exception()) is not None:
            self._events.put_nowait(error)
