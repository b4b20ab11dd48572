"""A request with its prompt -> generations under way -> the reply: what every chat call does.

`gateway.calls` captures the tokens of its calls, `serving.calls` counts its own; both are `ChatCall`s, and
`chat.stream` and `chat.endpoint` answer with either. Lives in one event loop.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from strop.errors import EngineError
from strop.inference.chat.render import Prompt, Renderer
from strop.inference.chat.replies import choice, completion, message_of, token_logprobs, usage_of
from strop.inference.chat.request import ChatRequest
from strop.inference.chat.sampler import Generation, Sampler
from strop.locales import msg
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
            raise EngineError(msg("the engine ended a generation before it was finished"))
        self.completions[index] = sampled
        self.latencies_s[index] = time.perf_counter() - self._started
        self._events.put_nowait((index, None))

    def _pumped(self, pump: asyncio.Task[None]) -> None:
        if not pump.cancelled() and (error := pump.exception()) is not None:
            self._events.put_nowait(error)


class ChatCall(ABC):
    """One accepted request and its `n` generations.

    Use as a context: entering it admits the call and starts the sampling, leaving it aborts whatever is still
    under way. `chunks` runs it to its end, `reply` then makes the answer. `interrupt` ends it from outside
    (rollout over, server stopping, client gone).

    Units:
        created: seconds since 1970.
    """

    model_name: str

    def __init__(
        self,
        request: ChatRequest,
        prompt: Prompt,
        params: SamplingParams,
        sampler: Sampler,
        renderer: Renderer,
    ) -> None:
        self.request = request
        self.prompt = prompt
        self.params = params
        self.created = int(time.time())
        self.answered = False
        self._renderer = renderer
        self._answering = Answering(sampler, streams=bool(request.stream))

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt.token_ids)

    def __enter__(self) -> Self:
        """
        Raises:
            RequestRefused: there is no place for the call, or its attempt has ended.
        """
        self._admit()
        try:
            choices = [replace(self.params, seed=self._seed(i)) for i in range(self.request.num_choices)]
            self._answering.start(self.prompt.token_ids, choices)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def interrupt(self, reason: Exception) -> None:
        """End the call with `reason` instead of an answer. Without effect once answered."""
        if not self.answered:
            self._answering.interrupt(reason)

    def chunks(self) -> AsyncIterator[tuple[int, CompletionChunk]]:
        """Run to the end of all choices, yielding (choice, what became certain) if the request streams.

        Raises:
            EngineError: the engine gave up on a choice; the others are not kept either.
            RequestRefused, ClientGone: whatever interrupted the call.
        """
        return self._answering.chunks()

    async def finish(self) -> None:
        """Run to the end without looking at the chunks."""
        async for _ in self._answering.chunks():
            continue

    def logprobs_of(self, piece: Completion | CompletionChunk) -> dict[str, Any] | None:
        """In OpenAI's form, if the request asks for them."""
        if not self.request.logprobs:
            return None
        return token_logprobs(piece.token_ids, piece.logprobs, piece.top_logprobs, self._renderer.token_text)

    def reply(self) -> dict[str, Any]:
        """The answer of a call that ran to its end.

        Raises:
            RequestRefused, ClientGone: the call was interrupted; nothing is kept of it.
        """
        if self._answering.interruption is not None:
            raise self._answering.interruption
        sampled = [self._answering.completions[index] for index in range(self.request.num_choices)]
        read = [
            message_of(one.text, parses_tools=self.request.parses_tools, seed=self._tool_seed(index))
            for index, one in enumerate(sampled)
        ]
        reply = completion(
            reply_id=self.reply_id,
            created=self.created,
            model=self.model_name,
            fingerprint=self._fingerprint(sampled),
            choices=[
                choice(index, message, one.finish_reason, self.logprobs_of(one))
                for index, (one, (message, _)) in enumerate(zip(sampled, read, strict=True))
            ],
            usage=usage_of(self.num_prompt_tokens, sum(len(one.token_ids) for one in sampled)),
        )
        self._keep(reply, sampled, malformed=[malformed for _, malformed in read])
        self.answered = True
        return reply

    def _leave(self) -> None:
        self._answering.leave()
        self._release()

    @property
    @abstractmethod
    def reply_id(self) -> str: ...

    @abstractmethod
    def _admit(self) -> None:
        """Take what the call needs, or refuse it."""

    @abstractmethod
    def _seed(self, index: int) -> int:
        """What the noise of a choice is drawn from."""

    @abstractmethod
    def _tool_seed(self, index: int) -> int:
        """What the ids of a choice's tool calls are made of."""

    @abstractmethod
    def _fingerprint(self, sampled: Sequence[Completion]) -> str:
        """Which weights answered."""

    @abstractmethod
    def _keep(
        self, reply: dict[str, Any], sampled: Sequence[Completion], *, malformed: Sequence[bool]
    ) -> None:
        """Record the answered call. `malformed` tells of each choice whether a tool call in it is unreadable.

        Raises:
            RequestRefused: the answer comes too late to be kept.
        """

    @abstractmethod
    def _release(self) -> None:
        """Give back what `_admit` took; called once, answered or not."""
