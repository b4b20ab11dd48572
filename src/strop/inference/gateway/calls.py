"""ChatRequest -> generations under way -> Turns: a call is captured whole, exactly once, or not at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from strop.inference.gateway.answering import Answering
from strop.inference.gateway.attempts import Attempt
from strop.inference.gateway.errors import no_room
from strop.inference.gateway.idempotency import Identity
from strop.inference.gateway.openai_types import ChatRequest
from strop.inference.gateway.render import Prompt, Renderer
from strop.inference.gateway.replies import choice, completion, message_of, token_logprobs, usage_of
from strop.inference.gateway.sampler import Sampler
from strop.inference.gateway.sampling import derive_seed, ids_digest, params_for
from strop.inference.gateway.spans import SpanMaker
from strop.inference.gateway.stats import Stats
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
        self.spans: SpanMaker | None = None

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

    Use as a context: leaving it aborts whatever is still under way. `chunks` runs it to its end, `reply`
    then captures the turns. `interrupt` ends it from outside (rollout over, client gone).
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
        self.created = int(time.time())
        self._calls = calls
        self._attempt = attempt
        self._prompt = prompt
        self._params = params
        self._digest = ids_digest(prompt.token_ids)
        self._slot = -1
        self._answering = Answering(calls.sampler, streams=bool(request.stream))
        self._captured = False

    @property
    def reply_id(self) -> str:
        return f"chatcmpl-{self._seed(0):016x}"

    @property
    def model_name(self) -> str:
        return self._calls.model_name

    def logprobs_of(self, piece: Completion | CompletionChunk) -> dict[str, Any] | None:
        """In OpenAI's form, if the request asks for them."""
        if not self.request.logprobs:
            return None
        return token_logprobs(
            piece.token_ids, piece.logprobs, piece.likeliest, self._calls.renderer.token_text
        )

    def __enter__(self) -> Self:
        self._attempt.check_open()
        self._attempt.calls.add(self)
        self._slot = self._attempt.take_slot(self._digest)
        try:
            choices = [replace(self._params, seed=self._seed(i)) for i in range(self.request.num_choices)]
            self._answering.start(self._prompt.token_ids, choices)
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
        if not self._captured:
            self._answering.interrupt(reason)

    def chunks(self) -> AsyncIterator[tuple[int, CompletionChunk]]:
        """Run to the end of all choices, yielding (choice, what became certain) if the request streams.

        Raises:
            EngineError: the engine gave up on a choice; the others are not kept either.
            RequestRefused, ClientGone: whatever interrupted the call.
        """
        return self._answering.chunks()

    async def finish(self) -> None:
        """`chunks` for who does not stream."""
        async for _ in self.chunks():
            continue

    def reply(self) -> dict[str, Any]:
        """Capture one turn of each choice in the attempt's record, and make the reply that holds them all.

        Raises:
            RequestRefused, ClientGone: the call was interrupted; nothing is recorded.
        """
        if self._answering.interruption is not None:
            raise self._answering.interruption
        self._attempt.check_open()
        completions = [self._answering.completions[index] for index in range(self.request.num_choices)]
        choices = [self._capture_choice(index) for index in range(len(completions))]
        reply = completion(
            reply_id=self.reply_id,
            created=self.created,
            model=self.model_name,
            fingerprint=f"policy-version-{completions[-1].policy_versions[-1]}",
            choices=choices,
            usage=usage_of(len(self._prompt.token_ids), sum(len(one.token_ids) for one in completions)),
        )
        self._captured = True
        self._calls.stats.model_calls += 1
        if self._calls.spans is not None:
            took_s = max(self._answering.latencies_s.values())
            self._calls.spans.call(self._attempt, self.request, reply, took_s)
        if self.identity is not None:
            self._attempt.replays.answered(self.identity, reply)
        return reply

    def _capture_choice(self, index: int) -> dict[str, Any]:
        sampled, latency_s = self._answering.completions[index], self._answering.latencies_s[index]
        attempt, stats = self._attempt, self._calls.stats
        message, malformed = message_of(
            sampled.text, parses_tools=self.request.parses_tools, seed=self._seed(index)
        )
        # A call cut off by the token limit is no mistake of the model's form.
        stats.tool_parse_errors += malformed and sampled.finish_reason is not FinishReason.LENGTH
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
        logprobs = self.logprobs_of(sampled)
        return choice(index, message, sampled.finish_reason, logprobs)

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

    def _leave(self) -> None:
        self._answering.leave()
        self._attempt.calls.discard(self)
        if not self._captured:
            self._calls.stats.aborted_calls += 1
            self._attempt.free_slot(self._digest, self._slot)
            if self.identity is not None:
                self._attempt.replays.failed(self.identity)
        self.ended.set()
