"""ChatRequest -> generations under way -> Turns: a call is captured whole, exactly once, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strop.inference.chat.call import ChatCall
from strop.inference.chat.errors import no_room
from strop.inference.chat.render import Prompt, Renderer
from strop.inference.chat.request import ChatRequest
from strop.inference.chat.sampler import Sampler
from strop.inference.chat.sampling import derive_seed, ids_digest, params_for
from strop.inference.gateway.attempts import Attempt
from strop.inference.gateway.idempotency import Identity
from strop.inference.gateway.spans import SpanMaker
from strop.schema.sampling import Completion, FinishReason, SamplingParams
from strop.schema.trajectory import Turn


@dataclass(slots=True)
class Stats:
    """Counters that only grow.

    Units:
        model_calls: calls answered with a fresh generation; turns: choices captured from them;
        model_latency_s: seconds those turns took, added up; replayed_calls: retries answered from memory;
        aborted_calls: calls that ended without a turn (client gone, rollout over, engine error);
        refused_calls: calls answered 4xx before any sampling; tool_parse_errors: answers whose tool call
        could not be read; rerendered_prompts: follow-up prompts that could not keep the sampled ids.
    """

    model_calls: int = 0
    turns: int = 0
    model_latency_s: float = 0.0
    replayed_calls: int = 0
    aborted_calls: int = 0
    refused_calls: int = 0
    tool_parse_errors: int = 0
    rerendered_prompts: int = 0


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


class Call(ChatCall):
    """A call of an attempt: once answered, one turn of each choice is in the attempt's record."""

    def __init__(
        self,
        calls: Calls,
        attempt: Attempt,
        request: ChatRequest,
        prompt: Prompt,
        params: SamplingParams,
        identity: Identity | None,
    ) -> None:
        super().__init__(request, prompt, params, calls.sampler, calls.renderer)
        self.model_name = calls.model_name
        self.identity = identity
        self.ended = asyncio.Event()
        self._calls = calls
        self._attempt = attempt
        self._digest = ids_digest(prompt.token_ids)
        self._slot = -1

    @property
    def reply_id(self) -> str:
        return f"chatcmpl-{self._seed(0):016x}"

    def _admit(self) -> None:
        self._attempt.check_open()
        self._attempt.calls.add(self)
        self._slot = self._attempt.take_slot(self._digest)

    def _seed(self, index: int) -> int:
        """Depends on who asks what, and how often before; not on the order in which calls arrive.

        A seed in the request replaces the count of equal prompts, so that equal calls repeat. It is mixed
        with the attempt's: an agent with a fixed seed must not make all rollouts of a group the same.
        """
        attempt, own = self._attempt, self._attempt.sampling.seed
        who = (own,) if own is not None else (self._calls.seed, attempt.rollout_id, attempt.attempt_id)
        asked = self.request.seed
        which = ("slot", self._slot) if asked is None else ("seed", asked)
        return derive_seed(*who, self._digest, *which, index)

    def _tool_seed(self, index: int) -> int:
        """A request with a seed samples the same again, but its calls are other calls."""
        repeats = self.request.seed is not None and self._slot > 0
        return derive_seed(self._seed(index), self._slot) if repeats else self._seed(index)

    def _fingerprint(self, sampled: Sequence[Completion]) -> str:
        return f"policy-version-{sampled[-1].policy_versions[-1]}"

    def _keep(
        self, reply: dict[str, Any], sampled: Sequence[Completion], *, malformed: Sequence[bool]
    ) -> None:
        self._attempt.check_open()
        for index, one in enumerate(sampled):
            # A call cut off by the token limit is no mistake of the model's form.
            cut_off = one.finish_reason is FinishReason.LENGTH
            self._calls.stats.tool_parse_errors += malformed[index] and not cut_off
            self._capture(one, reply["choices"][index]["message"], self._answering.latencies_s[index])
        self._calls.stats.model_calls += 1
        if self._calls.spans is not None:
            took_s = max(self._answering.latencies_s.values())
            self._calls.spans.call(self._attempt, self.request, reply, took_s)
        if self.identity is not None:
            self._attempt.replays.answered(self.identity, reply)

    def _capture(self, sampled: Completion, message: dict[str, Any], latency_s: float) -> None:
        attempt, stats = self._attempt, self._calls.stats
        attempt.turns.append(
            Turn(
                index=len(attempt.turns),
                prompt_ids=self.prompt.token_ids,
                completion_ids=sampled.token_ids,
                behaviour_logprobs=sampled.logprobs,
                policy_versions=sampled.policy_versions,
                temperature=self.params.temperature,
                finish_reason=sampled.finish_reason,
                messages=tuple(self.request.messages),
                response=message,
                latency_s=latency_s,
            )
        )
        entry = self._calls.renderer.after(self.prompt, sampled.token_ids, self.request.messages)
        attempt.known.append(entry)
        stats.turns += 1
        stats.model_latency_s += latency_s

    def _release(self) -> None:
        self._attempt.calls.discard(self)
        if not self.answered:
            self._calls.stats.aborted_calls += 1
            self._attempt.free_slot(self._digest, self._slot)
            if self.identity is not None:
                self._attempt.replays.failed(self.identity)
        self.ended.set()
