"""ChatRequest -> generations under way -> Turns: a call is captured whole, exactly once, or not at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from strop.errors import EngineError
from strop.gateway.attempts import Attempt
from strop.gateway.openai_types import ChatRequest
from strop.gateway.refusals import no_room
from strop.gateway.render import Prompt, Renderer
from strop.gateway.replays import Identity
from strop.gateway.replies import assistant_message, completion, finish_reason, token_logprobs, usage_of
from strop.gateway.sampler import Generation, Sampler
from strop.gateway.sampling import derive_seed, ids_digest, params_for
from strop.gateway.stats import Stats
from strop.gateway.tool_calls import MalformedToolCall, ToolCall, parse_tool_calls
from strop.schema.sampling import Completion, CompletionChunk, FinishReason, SamplingParams
from strop.schema.trajectory import Turn


class Calls:
    """Begins calls: renders the prompt, settles the sampling, counts."""

    def __init__(
        self, sampler: Sampler, renderer: Renderer, *, model_name: str, max_length: int, seed: int
    ) -> None:
        self.sampler = sampler
        self.renderer = renderer
        self.model_name = model_name
        self.max_length = max_length
        self.seed = seed
        self.stats = Stats()

    def begin(self, attempt: Attempt, request: ChatRequest, identity: Identity | None = None) -> Call:
        """Make a call ready; entering it as a context starts the sampling.

        Raises:
            RequestRefused: the attempt has ended, or the request cannot be sampled as it stands.
        """
        attempt.check_open()
        prompt = self.renderer.prompt(
            request.messages, request.tools, attempt.known, request.chat_template_kwargs
        )
        room = self.max_length - len(prompt.token_ids)
        if room < 1:
            raise no_room(len(prompt.token_ids), self.max_length)
        params = params_for(request, attempt.sampling, training=attempt.training, room=room)
        if not prompt.kept_ids:
            self.stats.rerendered_prompts += 1
        return Call(self, attempt, request, prompt, params, identity)


class Call:
    """One accepted request: its `n` generations, from submission to capture.

    Use as a context: leaving it aborts whatever is still under way. `chunks` runs it to its end, `capture`
    then makes the turns. `interrupt` ends it from outside (rollout over, client gone).
    """

    def __init__(
        self,
        calls: Calls,
        attempt: Attempt,
        request: ChatRequest,
        prompt: Prompt,
        params: SamplingParams,
        identity: Identity | None,
    ) -> None:
        self.request = request
        self.identity = identity
        self.ended = asyncio.Event()
        self._calls = calls
        self._attempt = attempt
        self._prompt = prompt
        self._params = params
        self._digest = ids_digest(prompt.token_ids)
        self._slot = -1
        self._generations: list[Generation] = []
        self._pumps: list[asyncio.Task[None]] = []
        self._completions: dict[int, tuple[Completion, float]] = {}
        self._events: asyncio.Queue[tuple[int, CompletionChunk | None] | BaseException] = asyncio.Queue()
        self._interruption: Exception | None = None
        self._captured = False
        self._started = 0.0
        self.created = int(time.time())

    @property
    def reply_id(self) -> str:
        return f"chatcmpl-{self._seed(0):016x}"

    @property
    def model_name(self) -> str:
        return self._calls.model_name

    def logprobs_of(self, token_ids: tuple[int, ...], logprobs: tuple[float, ...]) -> dict[str, Any] | None:
        """In OpenAI's form, if the request asks for them."""
        if not self.request.logprobs:
            return None
        return token_logprobs(token_ids, logprobs, self._calls.renderer.token_text)

    def __enter__(self) -> Self:
        self._attempt.check_open()
        self._attempt.calls.add(self)
        self._slot = self._attempt.take_slot(self._digest)
        self._started = time.perf_counter()
        try:
            for choice in range(self.request.num_choices):
                params = replace(self._params, seed=self._seed(choice))
                generation = self._calls.sampler.submit(self._prompt.token_ids, params)
                self._generations.append(generation)
                pump = asyncio.create_task(self._pump(choice, generation))
                pump.add_done_callback(self._pumped)
                self._pumps.append(pump)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def interrupt(self, reason: Exception) -> None:
        """End the call with `reason` instead of an answer. Without effect once captured."""
        if self._captured or self._interruption is not None:
            return
        self._interruption = reason
        for generation in self._generations:
            generation.abort()
        self._events.put_nowait(reason)

    async def chunks(self) -> AsyncIterator[tuple[int, CompletionChunk]]:
        """Run to the end of all choices, yielding (choice, what became certain) if the request streams.

        Raises:
            EngineError: the engine gave up on a choice; the others are not kept either.
            RequestRefused, ClientGone: whatever interrupted the call.
        """
        running = len(self._generations)
        while running:
            event = await self._events.get()
            if isinstance(event, BaseException):
                raise event
            choice, chunk = event
            if chunk is None:
                running -= 1
            else:
                yield choice, chunk

    async def finish(self) -> None:
        """`chunks` for who does not stream."""
        async for _ in self.chunks():
            continue

    def capture(self) -> dict[str, Any]:
        """Make one turn of each choice, in the attempt's record, and the reply that holds them all.

        Raises:
            RequestRefused, ClientGone: the call was interrupted; nothing is recorded.
        """
        if self._interruption is not None:
            raise self._interruption
        self._attempt.check_open()
        choices = [self._capture_choice(index) for index in range(len(self._generations))]
        completions = [self._completions[index][0] for index in range(len(choices))]
        reply = completion(
            reply_id=self.reply_id,
            created=self.created,
            model=self.model_name,
            policy_version=completions[-1].policy_versions[-1],
            choices=choices,
            usage=usage_of(len(self._prompt.token_ids), sum(len(one.token_ids) for one in completions)),
        )
        self._captured = True
        self._calls.stats.model_calls += 1
        if self.identity is not None:
            self._attempt.replays.answered(self.identity, reply)
        return reply

    def _capture_choice(self, index: int) -> dict[str, Any]:
        sampled, latency_s = self._completions[index]
        message = self._message(index, sampled.text, sampled.finish_reason)
        attempt, stats = self._attempt, self._calls.stats
        attempt.turns.append(
            Turn(
                index=len(attempt.turns),
                prompt_ids=self._prompt.token_ids,
                completion_ids=sampled.token_ids,
                behaviour_logprobs=sampled.logprobs,
                policy_versions=sampled.policy_versions,
                temperature=self._params.temperature,
                finish_reason=sampled.finish_reason,
                messages=tuple(self.request.messages),
                response=message,
                latency_s=latency_s,
            )
        )
        attempt.known.append(
            self._calls.renderer.after(self._prompt, sampled.token_ids, self.request.messages)
        )
        stats.turns += 1
        stats.model_latency_s += latency_s
        return {
            "index": index,
            "message": message,
            "logprobs": self.logprobs_of(sampled.token_ids, sampled.logprobs),
            "finish_reason": finish_reason(sampled.finish_reason, message),
        }

    def _message(self, index: int, text: str, reason: FinishReason) -> dict[str, Any]:
        """What cannot be read as a tool call stays content: the agent sees it and goes on."""
        content, calls = text, ()
        if self.request.parses_tools:
            try:
                content, calls = parse_tool_calls(text)
            except MalformedToolCall:
                # A call cut off by the token limit is no mistake of the model's form.
                self._calls.stats.tool_parse_errors += reason is not FinishReason.LENGTH
        return assistant_message(content, calls, call_ids=self._call_ids(index, calls))

    def _call_ids(self, index: int, calls: tuple[ToolCall, ...]) -> list[str]:
        """Templates may print these ids, so they must repeat with the run: made of the seed."""
        seed = self._seed(index)
        return [f"call_{derive_seed(seed, number):016x}" for number in range(len(calls))]

    def _seed(self, choice: int) -> int:
        """Depends on who asks what, and how often before; not on the order in which calls arrive.

        A seed in the request replaces the count of equal prompts, so that equal calls repeat. It is mixed
        with the attempt's: an agent with a fixed seed must not make all rollouts of a group the same.
        """
        attempt, own = self._attempt, self._attempt.sampling.seed
        who = (own,) if own is not None else (self._calls.seed, attempt.rollout_id, attempt.attempt_id)
        asked = self.request.seed
        which = ("slot", self._slot) if asked is None else ("seed", asked)
        return derive_seed(*who, self._digest, *which, choice)

    async def _pump(self, choice: int, generation: Generation) -> None:
        if self.request.stream:
            async for chunk in generation.chunks():
                self._events.put_nowait((choice, chunk))
        sampled = await generation.result()
        if sampled.finish_reason is FinishReason.ABORT or not sampled.token_ids:
            raise EngineError("the engine ended a generation before it was finished")
        self._completions[choice] = (sampled, time.perf_counter() - self._started)
        self._events.put_nowait((choice, None))

    def _pumped(self, pump: asyncio.Task[None]) -> None:
        if not pump.cancelled() and (error := pump.exception()) is not None:
            self._events.put_nowait(error)

    def _leave(self) -> None:
        for generation in self._generations:
            generation.abort()
        for pump in self._pumps:
            pump.cancel()
        self._attempt.calls.discard(self)
        if not self._captured:
            self._calls.stats.aborted_calls += 1
            self._attempt.free_slot(self._digest, self._slot)
            if self.identity is not None:
                self._attempt.replays.failed(self.identity)
        self.ended.set()
