"""Prompts as ids -> sampled ids: the engine's own thread, and the door to it from any other.

`cli` makes one and hands it to the gateway (`submit`) and to the flow (`drop_weights`, `load_weights`). All
work on tensors happens in the thread; what comes from outside waits in an inbox between two steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from strop.errors import EngineError
from strop.inference.local.adapter import AdaptedSampler, Adapter, LowRank
from strop.inference.local.attention import Attention
from strop.inference.local.check import check_forward, check_neighbours
from strop.inference.local.config import EngineConfig, sampling_dtype
from strop.inference.local.forward import Forward, HubForward
from strop.inference.local.fused import FusedLlama, can_fuse
from strop.inference.local.generation import Generation, Waiter, wake
from strop.inference.local.kv_cache import KVCache
from strop.inference.local.loading import network_from_folder, network_from_weights
from strop.inference.local.request import Request
from strop.inference.local.sampler import sample, top_logprobs
from strop.inference.local.scheduler import Finished, Scheduler
from strop.inference.local.stats import EngineStats
from strop.inference.local.support import kv_shape, refuse_unsupported, resolve_max_length, text_config
from strop.inference.local.threads import release_team
from strop.inference.local.vocabulary import Vocabulary
from strop.inference.local.weights import WeightList, WeightSource
from strop.locales import msg
from strop.memory import give_back_free_memory
from strop.schema.sampling import Completion, SamplingParams


class _Command:
    """Something another thread wants done between two steps, and waits for."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.done = threading.Event()
        self.error: EngineError | None = None


class Engine:
    """Continuous batching over a causal language model.

    Made from a folder or from weights, never from a model that something else holds: it keeps a copy in the
    sampling precision, and new weights reach it by `load_weights` only. `repeatable`: what is sampled for a
    request depends, bit for bit, on nothing but the request and the weights; found out when the engine is
    made.

    Raises:
        EngineError: a model that cannot be sampled here, or KV memory for not even one sequence.
    Concurrency:
        methods may be called from any thread; `submit` and its generation also from event loops.
    """

    @classmethod
    def from_folder(cls, folder: Path, config: EngineConfig | None = None) -> Engine:
        """An engine for the model and tokenizer in a Hugging Face folder.

        Raises:
            ModelError: they cannot be loaded.
        """
        return cls(*network_from_folder(folder), config)

    @classmethod
    def from_weights(
        cls,
        model_config: PreTrainedConfig,
        weights: Mapping[str, torch.Tensor],
        tokenizer: PreTrainedTokenizerBase,
        config: EngineConfig | None = None,
        *,
        generation_config: GenerationConfig | None = None,
    ) -> Engine:
        """An engine for an architecture and weights by the names of its `state_dict`, which are copied."""
        network = network_from_weights(model_config, weights)
        if generation_config is not None:
            network.generation_config = generation_config
        return cls(network, tokenizer, config)

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: EngineConfig | None = None
    ) -> None:
        """`model` is the engine's own, and given up once it is copied."""
        config = config or EngineConfig()
        self.max_length = resolve_max_length(model, config.max_length)
        refuse_unsupported(model, self.max_length)
        device = model.device
        dtype = sampling_dtype(config.dtype, device)
        self._vocabulary = Vocabulary(model, tokenizer)
        self._cache = _make_cache(model, config, self.max_length, dtype, device)
        self._attention = Attention(self._cache, num_heads=int(text_config(model).num_attention_heads))
        self._scheduler = Scheduler(
            self._cache, max_sequences=config.max_sequences, eos_ids=self._vocabulary.eos_ids
        )
        vocab = self._vocabulary.size
        self._weight_list = WeightList(model)
        self._forward: Forward
        if can_fuse(model):
            self._forward = FusedLlama(
                model, dtype=dtype, device=device, vocab=vocab, max_length=self.max_length
            )
        else:
            self._forward = HubForward(model, dtype=dtype, device=device, vocab=vocab)
        with torch.inference_mode():
            self._forward.load(self._weight_list.read(model))
            check_forward(model, self._forward, self._attention, vocab)
            # Code that is not ours multiplies with whatever kernel fits the number of rows best.
            fused = isinstance(self._forward, FusedLlama)
            self.repeatable = fused and check_neighbours(self._forward, self._attention, vocab)
        self._loaded = True
        release_team()
        self._seeds = np.random.default_rng(config.seed)
        self._policy_version = 0
        self._inbox: list[Request] = []
        self._commands: list[_Command] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._failure: EngineError | None = None
        self._num_requests = self._num_finished = self._num_steps = 0
        self._busy_s = 0.0

    @property
    def policy_version(self) -> int:
        """Version of the weights that the next token will be sampled from."""
        return self._policy_version

    @property
    def capacity(self) -> int:
        """Sequences that are sampled together at most: what `max_sequences` and the KV memory allow."""
        return self._scheduler.capacity

    @property
    def failure(self) -> EngineError | None:
        """Why the thread has stopped by itself; None while it runs, was not started or was closed."""
        return self._failure

    def start(self) -> None:
        """Start the thread. An engine starts once."""
        release_team()
        with self._changed:
            if self._thread is not None:
                raise EngineError(msg("the engine was started already"), fix=msg("make a new one"))
            self._thread = threading.Thread(target=self._run, name="strop-engine", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop after the current step. Requests that are not finished get an `EngineError`."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def adapted(self, change: LowRank) -> AdaptedSampler:
        """This engine as a model of its own: the same weights with a low-rank change.

        Requests of any number of such models and of the base run in one batch. `repeatable` is said of the
        base alone.

        Raises:
            EngineError: not a change of this model, or a model that takes none.
        """
        with torch.inference_mode():
            adapter = self._forward.adapt(change)
        release_team()
        return AdaptedSampler(self, adapter)

    def submit(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, adapter: Adapter | None = None
    ) -> Generation:
        """Queue a prompt; returns at once.

        It ends at `max_tokens`, or with reason `length` when prompt and answer fill `max_length`.

        Raises:
            EngineError: a prompt that can never fit or holds foreign ids; an engine that is not running.
        """
        request = self._request(prompt_ids, params, adapter)
        release_team()
        with self._changed:
            self._check_running()
            self._inbox.append(request)
            self._num_requests += 1
            self._changed.notify_all()
        return request.generation

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams | Sequence[SamplingParams]
    ) -> list[Completion]:
        """Sample an answer to each prompt and wait for all: for scripts without an event loop.

        One `params` with a seed gives equal prompts equal answers.
        """
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else params
        generations = [self.submit(ids, own) for ids, own in zip(prompts, each, strict=True)]
        return [generation.wait() for generation in generations]

    def load_weights(self, source: WeightSource, *, version: int) -> None:
        """Sample from other weights of the same model from the next step on; waits until they are copied.

        Running sequences go on: the KV of what they have is computed again, and their later tokens carry the
        new version. Nothing computed with old weights is used again.

        Raises:
            EngineError: not this model's weights; the engine then keeps the old ones.
        """
        weights = self._weight_list.read(source)
        # The caller has most likely just trained, and will not multiply again before the engine has sampled.
        release_team()

        def work() -> None:
            if not self._loaded:
                give_back_free_memory()  # what the learner's update has left
            self._forward.load(weights)
            self._scheduler.forget_kv()
            self._policy_version = version
            self._loaded = True

        self._between_steps(work)

    def drop_weights(self) -> None:
        """Give the memory of weights and KV back until `load_weights` brings others; waits until it is free.

        For a learner that updates on the same machine while nobody samples: its activations and the engine's
        copy are then never there at once. Whatever is submitted or running meanwhile waits for the weights.
        """

        def work() -> None:
            if not self._loaded:
                return
            self._loaded = False
            self._forward.drop()
            self._cache.give_back()
            give_back_free_memory()

        self._between_steps(work)

    def _between_steps(self, work: Callable[[], None]) -> None:
        """Let the engine's thread do something, and wait for it; where none runs, do it here."""
        command = _Command(work)
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if self._thread is None or self._closing:
                with torch.inference_mode():
                    work()
                return
            self._commands.append(command)
            self._changed.notify_all()
        command.done.wait()
        if command.error is not None:
            raise command.error

    def stats(self) -> EngineStats:
        """What the engine has done so far."""
        counts, shape = self._scheduler.counts, self._cache.shape
        with self._changed:
            return EngineStats(
                num_requests=self._num_requests,
                num_finished=self._num_finished,
                num_running=self._scheduler.num_running,
                num_waiting=self._scheduler.num_waiting + len(self._inbox),
                num_steps=self._num_steps,
                num_sampled=counts.num_sampled,
                num_prefilled=counts.num_prefilled,
                num_prefix_hits=counts.num_prefix_hits,
                busy_s=self._busy_s,
                peak_sequences=counts.peak_sequences,
                peak_kv_bytes=counts.peak_tokens * shape.bytes_per_token,
                kv_bytes=self._cache.num_slots * self.max_length * shape.bytes_per_token,
            )

    def _request(self, prompt_ids: Sequence[int], params: SamplingParams, adapter: Adapter | None) -> Request:
        prompt = np.array(prompt_ids, dtype=np.int64)
        if prompt.ndim != 1 or len(prompt) == 0:
            raise EngineError(msg("the prompt is empty"), fix=msg("give at least one token id"))
        if len(prompt) >= self.max_length:
            raise EngineError(
                msg(
                    "the prompt has {num_prompt} tokens and leaves no room for an answer: "
                    "max_length is {max_length}",
                    num_prompt=len(prompt),
                    max_length=self.max_length,
                ),
                fix=msg("shorten the prompt or raise max_length"),
            )
        embedded = self._vocabulary.embedded
        if prompt.min() < 0 or prompt.max() >= embedded:
            wrong = prompt[(prompt < 0) | (prompt >= embedded)][0]
            raise EngineError(
                msg(
                    "the prompt holds token id {wrong}; the model has ids 0 to {embedded}",
                    wrong=wrong,
                    embedded=embedded - 1,
                )
            )
        stops = self._vocabulary.stops(params.stop)
        with self._changed:
            drawn = int(self._seeds.integers(2**63))
        return Request(
            prompt=prompt,
            params=params,
            seed=drawn if params.seed is None else params.seed % 2**64,
            limit=min(self.max_length, len(prompt) + params.max_tokens),
            stops=stops,
            generation=Generation(self._vocabulary.stream(stops.strings, stops.silent_ids)),
            adapter=adapter,
        )

    def _check_running(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._thread is None or self._closing:
            state = "closed" if self._closing else "not started"
            raise EngineError(
                msg("the engine is {state}", state=state), fix=msg("submit between start() and close()")
            )

    def _run(self) -> None:
        reason = EngineError(msg("the engine was closed before this request finished"))
        try:
            with torch.inference_mode():
                while self._take_inbox():
                    if self._loaded:
                        self._step()
        except BaseException as error:  # noqa: BLE001 - the thread's edge: whoever waits must hear of it
            reason = EngineError(
                msg("the engine's thread failed: {name}: {error}", name=type(error).__name__, error=error)
            )
            reason.__cause__ = error
            self._failure = reason
        finally:
            self._end_all(reason)

    def _take_inbox(self) -> bool:
        """Wait for something to do, do commands, fetch the inbox. False when the engine closes."""
        with self._changed:
            scheduler = self._scheduler
            while not (self._closing or self._inbox or self._commands or (scheduler.busy and self._loaded)):
                release_team()
                self._changed.wait()
            if self._closing:
                return False
            inbox, self._inbox = self._inbox, []
            commands, self._commands = self._commands, []
        for request in inbox:
            scheduler.add(request)
        for position, command in enumerate(commands):
            try:
                command.work()
            except BaseException as error:
                # Half-copied weights: nothing may be sampled from them.
                for unfinished in commands[position:]:
                    unfinished.error = EngineError(msg("copying the weights failed: {error}", error=error))
                    unfinished.done.set()
                raise
            command.done.set()
        return True

    def _step(self) -> None:
        begin = time.perf_counter()
        scheduler = self._scheduler
        waiters: list[Waiter] = []
        for finished in scheduler.remove_aborted():
            waiters += self._finish(finished)
        batch = scheduler.next_batch()
        if batch is not None:
            draws = scheduler.draws()
            logits_MV = self._forward.logits(batch, self._attention)
            ids_M, logprobs_M = sample(logits_MV, draws)
            if asking := scheduler.wants_logprobs():
                counts = [request.params.top_logprobs for _, request in asking]
                told = top_logprobs(logits_MV, [m for m, _ in asking], counts)
                for (_, request), best in zip(asking, told, strict=True):
                    request.top_logprobs.append(best)
            finished_ones, broken = scheduler.accept(ids_M, logprobs_M, self._policy_version)
            for request, token_ids, logprobs, best in scheduler.new_tokens():
                waiters += request.generation.push(token_ids, logprobs, best)
            for finished in finished_ones:
                waiters += self._finish(finished)
            for request in broken:
                waiters += request.generation.end(_not_finite(self._policy_version))
            self._num_steps += 1
        wake(waiters)
        self._busy_s += time.perf_counter() - begin

    def _finish(self, finished: Finished) -> list[Waiter]:
        request, token_ids = finished.request, finished.token_ids
        if request.stops.text is not None:
            request.stops.text.finish()
            text = request.stops.text.text
        else:
            silent_ids = request.stops.silent_ids
            text = self._vocabulary.decode([token_id for token_id in token_ids if token_id not in silent_ids])
        self._num_finished += 1
        return request.generation.end(
            Completion(
                token_ids=token_ids,
                logprobs=finished.logprobs,
                policy_versions=finished.policy_versions,
                text=text,
                finish_reason=finished.reason,
                top_logprobs=tuple(request.top_logprobs),
            )
        )

    def _end_all(self, reason: EngineError) -> None:
        with self._changed:
            self._closing = True
            requests = [*self._scheduler.remove_all(), *self._inbox]
            commands, self._inbox, self._commands = self._commands, [], []
        for command in commands:
            command.error = reason
            command.done.set()
        waiters = [waiter for request in requests for waiter in request.generation.end(reason)]
        wake(waiters)


def _not_finite(version: int) -> EngineError:
    return EngineError(
        msg("the model's logits are not finite at policy version {version}", version=version),
        fix=msg(
            "the weights hold NaN or infinity: go back to an earlier checkpoint, lower the learning rate"
        ),
    )


def _make_cache(
    model: PreTrainedModel, config: EngineConfig, max_length: int, dtype: torch.dtype, device: torch.device
) -> KVCache:
    shape = kv_shape(model, dtype)
    slot_bytes = shape.bytes_per_token * max_length
    num_slots = config.max_sequences
    if config.kv_memory_bytes is not None:
        num_slots = config.kv_memory_bytes // slot_bytes
        if num_slots == 0:
            raise EngineError(
                msg(
                    "kv_memory_bytes is {kv_memory_bytes}; one sequence of {max_length} "
                    "tokens needs {slot_bytes}",
                    kv_memory_bytes=config.kv_memory_bytes,
                    max_length=max_length,
                    slot_bytes=slot_bytes,
                ),
                fix=msg("raise kv_memory_bytes or lower max_length"),
            )
    return KVCache(shape, num_slots=num_slots, max_length=max_length, device=device)
