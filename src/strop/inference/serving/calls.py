"""ChatRequest -> an answer of the served model: a call whose tokens nobody trains on."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from strop.inference.gateway.answering import Answering
from strop.inference.gateway.errors import ClientGone, RequestRefused
from strop.inference.gateway.openai_types import ChatRequest
from strop.inference.gateway.replies import choice, completion, message_of, token_logprobs, usage_of
from strop.inference.gateway.sampling import derive_seed
from strop.inference.serving.metrics import Outcome
from strop.inference.serving.model import ServedModel
from strop.schema.sampling import Completion, CompletionChunk


class ServedCall:
    """One request and its `n` answers; see `strop.inference.gateway.stream.OpenCall`.

    Made outside, it only checks the request; entered, it takes its places and samples; left, whatever is
    still under way is aborted.

    Raises:
        RequestRefused: the request cannot be answered as it stands.
    """

    def __init__(self, model: ServedModel, request: ChatRequest) -> None:
        self._prompt, self._params = model.prepare(request)
        self._model = model
        self._seeds = [_seed(request.seed, index) for index in range(request.num_choices)]
        self._answering = Answering(model.sampler, streams=bool(request.stream))
        self._outcome = Outcome.FAILED
        self._started = 0.0
        self.request = request
        self.reply_id = f"chatcmpl-{secrets.token_hex(12)}"
        self.created = int(time.time())

    @property
    def model_name(self) -> str:
        return self._model.name

    @property
    def num_prompt_tokens(self) -> int:
        return len(self._prompt.token_ids)

    def __enter__(self) -> Self:
        """Raises `RequestRefused` (429) when too many answers are waiting."""
        try:
            self._model.places.take(len(self._seeds))
        except RequestRefused:
            self._model.metrics.count(Outcome.REFUSED)
            raise
        self._started = time.perf_counter()
        self._model.calls.add(self)
        try:
            params = [replace(self._params, seed=seed) for seed in self._seeds]
            self._answering.start(self._prompt.token_ids, params)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def interrupt(self, reason: Exception) -> None:
        self._answering.interrupt(reason)

    async def chunks(self) -> AsyncIterator[tuple[int, CompletionChunk]]:
        begun = False
        async for index, chunk in self._answering.chunks():
            if not begun:
                begun = True
                self._model.metrics.first_token_s.observe(time.perf_counter() - self._started)
            yield index, chunk

    async def finish(self) -> None:
        """`chunks` for who does not stream."""
        async for _ in self._answering.chunks():
            continue

    def logprobs_of(self, piece: Completion | CompletionChunk) -> dict[str, Any] | None:
        """In OpenAI's form, if the request asks for them."""
        if not self.request.logprobs:
            return None
        return token_logprobs(
            piece.token_ids, piece.logprobs, piece.likeliest, self._model.renderer.token_text
        )

    def reply(self) -> dict[str, Any]:
        """Raises:
        RequestRefused, ClientGone: the call was interrupted.
        """
        if self._answering.interruption is not None:
            raise self._answering.interruption
        choices = [self._choice(index) for index in range(len(self._seeds))]
        sampled = sum(len(one.token_ids) for one in self._answering.completions.values())
        self._outcome = Outcome.ANSWERED
        self._model.metrics.answered(self.num_prompt_tokens, sampled)
        return completion(
            reply_id=self.reply_id,
            created=self.created,
            model=self.model_name,
            fingerprint=self._model.fingerprint,
            choices=choices,
            usage=usage_of(self.num_prompt_tokens, sampled),
        )

    def _choice(self, index: int) -> dict[str, Any]:
        sampled = self._answering.completions[index]
        message, _ = message_of(
            sampled.text, parses_tools=self.request.parses_tools, seed=derive_seed(self.reply_id, index)
        )
        logprobs = self.logprobs_of(sampled)
        return choice(index, message, sampled.finish_reason, logprobs)

    def _leave(self) -> None:
        self._answering.leave()
        model, seconds = self._model, time.perf_counter() - self._started
        model.places.free(len(self._seeds))
        model.calls.discard(self)
        if self._outcome is Outcome.ANSWERED:
            model.places.took(seconds)
            model.metrics.answer_s.observe(seconds)
        elif isinstance(self._answering.interruption, ClientGone):
            self._outcome = Outcome.ABANDONED
        model.metrics.count(self._outcome)


def _seed(asked: int | None, index: int) -> int:
    """A seed in the request makes its answers repeat; its choices still differ."""
    return secrets.randbits(63) if asked is None else derive_seed(asked, index)
