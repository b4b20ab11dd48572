"""One request on its way: what the engine's thread puts in, an event loop or a thread takes out.

Any number of loops and threads may wait. The engine never blocks on a reader: it leaves tokens here and wakes
whoever waits, once a step for a whole loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Sequence

from strop.errors import EngineError
from strop.inference.local.text import TextStream
from strop.schema.sampling import Completion, CompletionChunk, TopLogprobs

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Generation:
    """Satisfies `strop.inference.chat.sampler.Generation`."""

    def __init__(self, stream: TextStream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._token_ids: list[int] = []
        self._logprobs: list[float] = []
        self._top_logprobs: list[TopLogprobs] = []
        self._outcome: Completion | EngineError | None = None
        self._ended = threading.Event()
        self._waiting_for_end: list[Waiter] = []
        self._waiting_for_token: list[Waiter] = []
        self.streaming = False
        self.aborted = False

    async def chunks(self) -> AsyncIterator[CompletionChunk]:
        """Yield as the engine steps; ends after the chunk with a finish reason. Iterate once.

        Raises:
            EngineError: the engine could not finish the request; chunks before it stand.
        """
        self.streaming = True
        num_sent = 0
        text = ""
        while True:
            with self._lock:
                outcome = self._outcome
                token_ids, logprobs = self._token_ids[num_sent:], self._logprobs[num_sent:]
                top_logprobs = self._top_logprobs[num_sent:]
                changed = None
                if outcome is None and not token_ids:
                    changed = self._wait(self._waiting_for_token)
            if changed is not None:
                await changed
                continue
            if isinstance(outcome, EngineError):
                raise outcome
            if outcome is not None:
                rest = outcome.text[len(text) :] if outcome.text.startswith(text) else ""
                yield CompletionChunk(
                    token_ids=outcome.token_ids[num_sent:],
                    logprobs=outcome.logprobs[num_sent:],
                    text=rest,
                    finish_reason=outcome.finish_reason,
                    top_logprobs=outcome.top_logprobs[num_sent:],
                )
                return
            num_sent += len(token_ids)
            new_text = self._stream.push(token_ids)
            text += new_text
            yield CompletionChunk(
                token_ids=tuple(token_ids),
                logprobs=tuple(logprobs),
                text=new_text,
                top_logprobs=tuple(top_logprobs),
            )

    async def result(self) -> Completion:
        """Wait for the end. Raises `EngineError` if the engine could not finish it."""
        with self._lock:
            changed = None if self._outcome is not None else self._wait(self._waiting_for_end)
        if changed is not None:
            await changed
        return self._finished()

    def wait(self, timeout_s: float | None = None) -> Completion:
        """`result` for a thread without an event loop. Raises `TimeoutError` after `timeout_s`."""
        if not self._ended.wait(timeout_s):
            raise TimeoutError(f"the generation did not end within {timeout_s} s")
        return self._finished()

    def abort(self) -> None:
        """Leave the batch at the next step; the result is what was sampled. Harmless when finished."""
        self.aborted = True

    def push(
        self, token_ids: Sequence[int], logprobs: Sequence[float], top_logprobs: Sequence[TopLogprobs] = ()
    ) -> list[Waiter]:
        """Engine's side: add tokens; returns who has to be woken."""
        with self._lock:
            self._token_ids.extend(token_ids)
            self._logprobs.extend(logprobs)
            self._top_logprobs.extend(top_logprobs)
            return self._take(self._waiting_for_token)

    def end(self, outcome: Completion | EngineError) -> list[Waiter]:
        """Engine's side: nothing more will come. The first end stands."""
        with self._lock:
            if self._outcome is not None:
                return []
            self._outcome = outcome
            self._ended.set()
            return self._take(self._waiting_for_token) + self._take(self._waiting_for_end)

    def _finished(self) -> Completion:
        if isinstance(self._outcome, EngineError):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    @staticmethod
    def _wait(waiters: list[Waiter]) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        waiters.append((loop, future))
        return future

    @staticmethod
    def _take(waiters: list[Waiter]) -> list[Waiter]:
        taken = list(waiters)
        waiters.clear()
        return taken


def wake(waiters: Iterable[Waiter]) -> None:
    """Let the readers go on: one call into each loop, however many of its tasks wait."""
    futures_of: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for loop, future in waiters:
        futures_of.setdefault(loop, []).append(future)
    for loop, futures in futures_of.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures)
        except RuntimeError:
            # The loop was closed with readers in it; nobody is left to hear.
            continue


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
