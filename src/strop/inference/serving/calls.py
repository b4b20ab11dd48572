"""ChatRequest -> an answer of the served model: a call whose tokens nobody trains on."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from strop.inference.chat.call import ChatCall
from strop.inference.chat.errors import ClientGone, RequestRefused
from strop.inference.chat.request import ChatRequest
from strop.inference.chat.sampling import derive_seed
from strop.inference.serving.metrics import Outcome
from strop.inference.serving.models import ServedModel
from strop.schema.sampling import Completion, CompletionChunk


class ServedCall(ChatCall):
    """A call of one model: made, it only checks the request; entered, it takes its places and samples.

    Raises:
        RequestRefused: the request cannot be answered as it stands.
    """

    def __init__(self, model: ServedModel, request: ChatRequest) -> None:
        super().__init__(request, *model.prepare(request), model.sampler, model.renderer)
        self.model_name = model.name
        self._reply_id = f"chatcmpl-{secrets.token_hex(12)}"
        self._model = model
        self._seeds = [_new_seed(request.seed, index) for index in range(request.num_choices)]
        self._outcome = Outcome.FAILED
        self._started = 0.0

    @property
    def reply_id(self) -> str:
        return self._reply_id

    async def chunks(self) -> AsyncIterator[tuple[int, CompletionChunk]]:
        begun = False
        async for index, chunk in self._answering.chunks():
            if not begun:
                begun = True
                self._model.metrics.first_token_s.observe(time.perf_counter() - self._started)
            yield index, chunk

    def _admit(self) -> None:
        """Raises `RequestRefused` (429) when too many answers are waiting."""
        try:
            self._model.places.take(len(self._seeds))
        except RequestRefused:
            self._model.metrics.count(Outcome.REFUSED)
            raise
        self._started = time.perf_counter()
        self._model.calls.add(self)

    def _seed(self, index: int) -> int:
        return self._seeds[index]

    def _tool_seed(self, index: int) -> int:
        return derive_seed(self.reply_id, index)

    def _fingerprint(self, sampled: Sequence[Completion]) -> str:
        return self._model.fingerprint

    def _keep(
        self, reply: dict[str, Any], sampled: Sequence[Completion], *, malformed: Sequence[bool]
    ) -> None:
        self._outcome = Outcome.ANSWERED
        self._model.metrics.answered(self.num_prompt_tokens, reply["usage"]["completion_tokens"])

    def _release(self) -> None:
        model, seconds = self._model, time.perf_counter() - self._started
        model.places.free(len(self._seeds))
        model.calls.discard(self)
        if self._outcome is Outcome.ANSWERED:
            model.places.took(seconds)
            model.metrics.answer_s.observe(seconds)
        elif isinstance(self._answering.interruption, ClientGone):
            self._outcome = Outcome.ABANDONED
        model.metrics.count(self._outcome)


def _new_seed(asked: int | None, index: int) -> int:
    """A seed in the request makes its answers repeat; its choices still differ."""
    return secrets.randbits(63) if asked is None else derive_seed(asked, index)
