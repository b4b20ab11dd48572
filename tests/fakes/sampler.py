"""A script instead of an engine: what it is told to sample, token by token, for tests of the gateway.

`from fakes.sampler import FakeSampler, until`. Satisfies `strop.inference.chat.sampler.Sampler`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast

from strop.errors import EngineError
from strop.schema.sampling import Completion, CompletionChunk, FinishReason, SamplingParams, TopLogprobs

Answer = str | Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Submitted:
    prompt_ids: tuple[int, ...]
    params: SamplingParams


async def until(condition: Callable[[], bool], *, timeout_s: float = 5.0) -> None:
    """Wait for a condition that other tasks or sockets of this event loop bring about."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - conditions hang on sockets, which set no event
            await asyncio.sleep(0.001)


class FakeSampler:
    """Answers with `answer(prompt_ids, params)`: text, which is encoded and ended by EOS, or the very ids.

    `allow(n)` turns on stepping: only so many tokens are sampled, over all requests, until more are allowed.
    `error`, while set, is raised by every generation after its first token.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        answer: Callable[[tuple[int, ...], SamplingParams], Answer] = lambda prompt_ids, params: "hello",
    ) -> None:
        self.tokenizer = tokenizer
        self.answer = answer
        self.submitted: list[Submitted] = []
        self.generations: list[FakeGeneration] = []
        self.policy_version = 0
        self.error: EngineError | None = None
        self._allowed: int | None = None

    def submit(self, prompt_ids: Sequence[int], params: SamplingParams) -> FakeGeneration:
        self.submitted.append(Submitted(prompt_ids=tuple(prompt_ids), params=params))
        answer = self.answer(tuple(prompt_ids), params)
        if isinstance(answer, str):
            answer = [*self.tokenizer.encode(answer, add_special_tokens=False), self.tokenizer.eos_token_id]
        generation = FakeGeneration(self, tuple(answer), params)
        self.generations.append(generation)
        return generation

    def allow(self, num_tokens: int) -> None:
        self._allowed = (self._allowed or 0) + num_tokens
        for generation in self.generations:
            generation.wake.set()

    def take_token(self) -> bool:
        if self._allowed is None:
            return True
        if self._allowed == 0:
            return False
        self._allowed -= 1
        return True


class FakeGeneration:
    def __init__(self, sampler: FakeSampler, script: tuple[int, ...], params: SamplingParams) -> None:
        self.wake = asyncio.Event()
        self.aborted = False
        self.finished = False
        self._sampler = sampler
        self._script = script[: params.max_tokens]
        self._cut = len(script) > params.max_tokens
        self._params = params
        self._ids: list[int] = []
        self._text = ""
        self._reason = FinishReason.LENGTH

    def abort(self) -> None:
        self.aborted = True
        self.wake.set()

    async def chunks(self) -> AsyncIterator[CompletionChunk]:
        while not self.finished:
            await self._until_allowed()
            if self.aborted:
                self.finished, self._reason = True, FinishReason.ABORT
                yield CompletionChunk(token_ids=(), logprobs=(), text="", finish_reason=self._reason)
                return
            yield self._step()

    async def result(self) -> Completion:
        async for _ in self.chunks():
            continue
        return Completion(
            token_ids=tuple(self._ids),
            logprobs=tuple(logprob_of(token) for token in self._ids),
            policy_versions=(self._sampler.policy_version,) * len(self._ids),
            text=self._text,
            finish_reason=self._reason,
            top_logprobs=tuple(self._top_logprobs(token) for token in self._ids)
            if self._params.top_logprobs
            else (),
        )

    def _top_logprobs(self, token: int) -> TopLogprobs:
        """The sampled one and the first of the vocabulary."""
        return ((token, logprob_of(token)), (0, -9.0))[: self._params.top_logprobs]

    def _step(self) -> CompletionChunk:
        if self._sampler.error is not None and self._ids:
            raise self._sampler.error
        token = self._script[len(self._ids)]
        self._ids.append(token)
        text = str(self._sampler.tokenizer.decode(self._ids, skip_special_tokens=True))
        ended = token == self._sampler.tokenizer.eos_token_id
        for stop in self._params.stop:
            if stop in text:
                text, ended = text[: text.index(stop)], True
        self.finished = ended or len(self._ids) == len(self._script)
        if ended:
            self._reason = FinishReason.STOP
        certain = text if self.finished else self._certain(text)
        added, self._text = certain[len(self._text) :], certain
        return CompletionChunk(
            token_ids=(token,),
            logprobs=(logprob_of(token),),
            text=added,
            finish_reason=self._reason if self.finished else None,
            top_logprobs=(self._top_logprobs(token),) if self._params.top_logprobs else (),
        )

    def _certain(self, text: str) -> str:
        text = text.rstrip("\ufffd")
        held = [
            text[at:] for at in range(len(text)) if any(s.startswith(text[at:]) for s in self._params.stop)
        ]
        return text[: len(text) - len(held[0])] if held else text

    async def _until_allowed(self) -> None:
        await asyncio.sleep(0)
        while not self.aborted and not self._sampler.take_token():
            self.wake.clear()
            await self.wake.wait()


def logprob_of(token_id: int) -> float:
    """What the fake reports for a token; any test can tell it again."""
    return -(token_id + 1) / 1000
