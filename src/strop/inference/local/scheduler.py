"""Requests -> which tokens the next forward pass computes; sampled tokens -> finished sequences.

Sequences that run hold the first slots of the cache, without gaps. Each step computes, for every one, the
tokens
that it has and the cache has not: one while it samples, many while its prompt is new or the weights have
changed. Called by the engine's thread alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strop.inference.local.batch import StepBatch, make_batch
from strop.inference.local.kv_cache import KVCache
from strop.inference.local.request import Request
from strop.inference.local.sampler import Draws, uniforms
from strop.schema.sampling import FinishReason, TopLogprobs

MAX_STEP_TOKENS = 1024
"""Prompt tokens of one pass: enough for the full matrix rate, few enough that others go on."""

WORTH_WAITING = 16
"""Tokens that must be saved for a request to wait until another one's prompt is in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    request: Request
    reason: FinishReason
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_versions: tuple[int, ...]


@dataclass(slots=True)
class Counts:
    num_sampled: int = 0
    num_prefilled: int = 0
    num_prefix_hits: int = 0
    peak_sequences: int = 0
    peak_tokens: int = 0


class Scheduler:
    """First come, first served; except that a request waits for a prompt it shares to be computed once."""

    def __init__(self, cache: KVCache, *, max_sequences: int, eos_ids: Collection[int]) -> None:
        self._cache = cache
        self.capacity = min(max_sequences, cache.num_slots)
        self._eos_ids = np.array(sorted(eos_ids), dtype=np.int64)
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._take_S = np.zeros(0, dtype=np.int64)
        self._ready = np.zeros(0, dtype=np.int64)
        self._clock = 0
        self._members_changed = True
        self.counts = Counts()

    @property
    def busy(self) -> bool:
        return bool(self._running or self._waiting)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def add(self, request: Request) -> None:
        self._waiting.append(request)

    def remove_aborted(self) -> list[Finished]:
        """Take out everything whose reader has lost interest."""
        gone = [self._finished(r, None, FinishReason.ABORT) for r in self._waiting if r.generation.aborted]
        if gone:
            self._waiting = deque(r for r in self._waiting if not r.generation.aborted)
        for slot in reversed(range(len(self._running))):
            if self._running[slot].generation.aborted:
                gone.append(self._leave(slot, FinishReason.ABORT))
        return gone

    def remove_all(self) -> list[Request]:
        """Every request that is not finished, for an engine that stops."""
        requests = [*self._running, *self._waiting]
        self._running.clear()
        self._waiting.clear()
        return requests

    def next_batch(self) -> StepBatch | None:
        """Let requests in and lay out the next pass; None when there is nothing to do."""
        self._admit()
        num_running = len(self._running)
        if not num_running:
            return None
        cache = self._cache
        missing_S = cache.num_tokens_S[:num_running] - cache.num_cached_S[:num_running]
        self._take_S = _share(missing_S)
        ready_S = self._take_S == missing_S
        self._ready = np.flatnonzero(ready_S)
        self._count(missing_S)
        return make_batch(cache, self._take_S, ready_S, [request.adapter for request in self._running])

    def draws(self) -> Draws:
        """How to sample the rows of the batch just laid out."""
        if self._members_changed:
            params = [request.params for request in self._running]
            self._prompt_S = np.array([len(r.prompt) for r in self._running], dtype=np.int64)
            self._limit_S = np.array([r.limit for r in self._running], dtype=np.int64)
            self._seed_S = np.array([r.seed for r in self._running], dtype=np.uint64)
            self._temperature_S = np.array([p.temperature for p in params], dtype=np.float32)
            self._top_p_S = np.array([p.top_p for p in params], dtype=np.float32)
            self._top_k_S = np.array([p.top_k for p in params], dtype=np.int64)
            self._members_changed = False
        rows = self._ready
        index_M = self._cache.num_tokens_S[rows] - self._prompt_S[rows]
        return Draws(
            temperature_M=self._temperature_S[rows],
            top_p_M=self._top_p_S[rows],
            top_k_M=self._top_k_S[rows],
            uniform_M=uniforms(self._seed_S[rows], index_M),
        )

    def wants_logprobs(self) -> list[tuple[int, Request]]:
        """The rows of the batch just laid out whose requests want to know the likeliest tokens, too."""
        rows = ((m, self._running[slot]) for m, slot in enumerate(self._ready))
        return [(m, request) for m, request in rows if request.params.top_logprobs]

    def accept(
        self, ids_M: npt.NDArray[np.int64], logprobs_M: npt.NDArray[np.float32], policy_version: int
    ) -> tuple[list[Finished], list[Request]]:
        """Take what the pass gave: sequences that ended leave at once.

        Returns the finished ones, and those whose logits were not finite (they leave too).
        """
        cache, rows = self._cache, self._ready
        cache.num_cached_S[: len(self._running)] += self._take_S
        place_M = cache.num_tokens_S[rows]
        cache.tokens_SL[rows, place_M] = ids_M
        cache.logprobs_SL[rows, place_M] = logprobs_M
        cache.versions_SL[rows, place_M] = policy_version
        cache.num_tokens_S[rows] += 1
        self.counts.num_sampled += len(rows)

        broken_M = ~np.isfinite(logprobs_M)
        stopped_M = np.isin(ids_M, self._eos_ids)
        for m, slot in enumerate(rows):
            stops = self._running[slot].stops
            if stops.watching and not stopped_M[m]:
                stopped_M[m] = stops.reached(int(ids_M[m]))
        full_M = cache.num_tokens_S[rows] >= self._limit_S[rows]
        finished: list[Finished] = []
        broken: list[Request] = []
        # From the last slot down, so that what moves into a gap has been looked at.
        for m in np.flatnonzero(stopped_M | full_M | broken_M)[::-1]:
            slot = int(rows[m])
            if broken_M[m]:
                broken.append(self._running[slot])
                self._leave(slot, FinishReason.ABORT)
            else:
                finished.append(self._leave(slot, FinishReason.STOP if stopped_M[m] else FinishReason.LENGTH))
        if broken:
            cache.wipe()
        return finished, broken

    def new_tokens(self) -> list[tuple[Request, list[int], list[float], list[TopLogprobs]]]:
        """Tokens of running sequences that are streamed and have not been handed out yet."""
        cache = self._cache
        fresh: list[tuple[Request, list[int], list[float], list[TopLogprobs]]] = []
        for slot, request in enumerate(self._running):
            begin, end = len(request.prompt) + request.num_pushed, int(cache.num_tokens_S[slot])
            if request.generation.streaming and end > begin:
                told = request.top_logprobs[request.num_pushed :]
                request.num_pushed += end - begin
                ids, logprobs = cache.tokens_SL[slot, begin:end], cache.logprobs_SL[slot, begin:end]
                fresh.append((request, ids.tolist(), logprobs.tolist(), told))
        return fresh

    def forget_kv(self) -> None:
        """New weights: running sequences compute all their tokens again, and no prefix is reused."""
        self._cache.forget()

    def _admit(self) -> None:
        cache, running = self._cache, self._running
        num_tokens = int((cache.num_tokens_S - cache.num_cached_S)[: len(running)].sum())
        held: list[Request] = []
        while self._waiting and len(running) < self.capacity and num_tokens < MAX_STEP_TOKENS:
            request = self._waiting.popleft()
            if not self._place(request):
                held.append(request)
                continue
            num_tokens += int(len(request.prompt) - cache.num_cached_S[len(running) - 1])
        self._waiting.extendleft(reversed(held))

    def _place(self, request: Request) -> bool:
        """Give the request the next slot, with the longest prefix that any slot has; False: better wait."""
        cache, prompt = self._cache, request.prompt
        slot = len(self._running)
        # The last token is always computed: its logits are what is wanted.
        readable_S = np.where(cache.adapter_S == request.adapter_key, cache.num_cached_S, 0)
        shared_S = np.minimum(cache.common_prefix(prompt, readable_S), len(prompt) - 1)
        if slot and self._coming(request, slot) - shared_S.max() >= WORTH_WAITING:
            return False
        # A slot that nobody runs in, rather than one that must be copied.
        source = slot + int(shared_S[slot:].argmax())
        if slot and shared_S[:slot].max() > shared_S[source]:
            source = int(shared_S[:slot].argmax())
        shared = int(shared_S[source])
        oldest = cache.oldest(slot)
        if source >= slot and (source == oldest or 2 * shared >= cache.num_cached_S[source]):
            cache.swap(source, slot)
        else:
            cache.num_cached_S[oldest] = cache.num_tokens_S[oldest] = 0
            cache.swap(oldest, slot)
            cache.copy_prefix(oldest if source == slot else source, slot, shared)
        cache.num_cached_S[slot] = shared
        cache.num_tokens_S[slot] = len(prompt)
        cache.adapter_S[slot] = request.adapter_key
        cache.tokens_SL[slot, : len(prompt)] = prompt
        self._running.append(request)
        self._members_changed = True
        self.counts.num_prefix_hits += shared
        return True

    def _coming(self, request: Request, num_running: int) -> int:
        """The longest prefix that will be cached once the running sequences have computed what they know."""
        cache, prompt = self._cache, request.prompt
        known_S = np.where(cache.adapter_S == request.adapter_key, cache.num_tokens_S, 0)
        known_S[num_running:] = 0
        return min(int(cache.common_prefix(prompt, known_S).max()), len(prompt) - 1)

    def _leave(self, slot: int, reason: FinishReason) -> Finished:
        finished = self._finished(self._running[slot], slot, reason)
        last = len(self._running) - 1
        self._clock += 1
        self._cache.used_at_S[slot] = self._clock
        self._cache.swap(slot, last)
        self._running[slot] = self._running[last]
        self._running.pop()
        self._members_changed = True
        return finished

    def _finished(self, request: Request, slot: int | None, reason: FinishReason) -> Finished:
        cache, place = self._cache, slice(0, 0)
        if slot is not None:
            place = slice(len(request.prompt), int(cache.num_tokens_S[slot]))
        return Finished(
            request=request,
            reason=reason,
            token_ids=tuple(cache.tokens_SL[slot or 0, place].tolist()),
            logprobs=tuple(cache.logprobs_SL[slot or 0, place].tolist()),
            policy_versions=tuple(cache.versions_SL[slot or 0, place].tolist()),
        )

    def _count(self, missing_S: npt.NDArray[np.int64]) -> None:
        cache, num_running = self._cache, len(self._running)
        prompt_S = np.array([len(r.prompt) for r in self._running], dtype=np.int64)
        sampling_S = (missing_S == 1) & (cache.num_tokens_S[:num_running] > prompt_S)
        self.counts.num_prefilled += int(self._take_S[~sampling_S].sum())
        num_tokens = int(cache.num_cached_S[:num_running].sum() + self._take_S.sum())
        self.counts.peak_sequences = max(self.counts.peak_sequences, num_running)
        self.counts.peak_tokens = max(self.counts.peak_tokens, num_tokens)


def _share(missing_S: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Tokens for each sequence: one for all that sample, the rest of the pass to prompts in order.

    >>> _share(np.array([1, 1000, 1, 500]))
    array([   1, 1000,    1,   24])
    """
    many_S = np.where(missing_S > 1, missing_S, 0)
    before_S = np.cumsum(many_S) - many_S
    return np.where(missing_S > 1, np.clip(MAX_STEP_TOKENS - before_S, 0, missing_S), missing_S)
