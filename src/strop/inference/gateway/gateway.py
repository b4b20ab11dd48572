"""An engine + a tokenizer -> an OpenAI address for every attempt of a rollout, and the turns sampled there.

`cli` makes one in the trainer's process and hands it to the flow as its `RolloutGateway`. All runs in one
event loop's thread; the engine steps in a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import SecretStr

from strop.inference.chat.endpoint import GuestServer, bind
from strop.inference.chat.render import Renderer
from strop.inference.chat.request import checked_request
from strop.inference.chat.sampler import Sampler
from strop.inference.chat.sampling import check_trainable
from strop.inference.gateway.app import create_app
from strop.inference.gateway.attempts import Attempts
from strop.inference.gateway.calls import Calls, Stats
from strop.inference.gateway.spans import Sink, SpanMaker
from strop.schema.function import ModelResource
from strop.schema.sampling import SamplingParams
from strop.schema.trajectory import Turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

_GRACE_S = 5
"""Seconds that `stop` waits for clients to read their last answers."""


class Gateway:
    """Captures what agents sample; satisfies `strop.rl.interfaces.Capture`.

    Units:
        max_length: tokens of prompt and answer together. `seed` makes the calls of attempts repeatable whose
        own sampling has no seed.
    Concurrency:
        Every method is called from the thread of the event loop that `start` ran in.
    """

    def __init__(
        self,
        sampler: Sampler,
        tokenizer: PreTrainedTokenizerBase,
        *,
        model_name: str,
        max_length: int,
        seed: int,
    ) -> None:
        self._attempts = Attempts()
        self._renderer = Renderer(tokenizer)
        self._calls = Calls(sampler, self._renderer, model_name=model_name, max_length=max_length, seed=seed)
        self._server: GuestServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._base_url = ""

    @property
    def base_url(self) -> str:
        """Where the server listens, without a path.

        Raises:
            RuntimeError: it does not listen yet.
        """
        if not self._base_url:
            raise RuntimeError("the gateway has no address before `await gateway.start()`")
        return self._base_url

    @property
    def stats(self) -> Stats:
        return self._calls.stats

    def tell_spans(self, job_id: str, sink: Sink) -> None:
        """Hand `sink` the spans of every attempt from now on, when it is closed."""
        self._calls.spans = SpanMaker(job_id, sink)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen, in the running event loop. Port 0 takes a free one.

        Raises:
            StropError: the address cannot be had.
        """
        if self._serving is not None:
            raise RuntimeError("the gateway is already started")
        listener = bind(host, port)
        self._server = GuestServer(create_app(self._attempts, self._calls), grace_s=_GRACE_S)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        listening = asyncio.create_task(self._server.listening.wait())
        await asyncio.wait({self._serving, listening}, return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            listening.cancel()
            self._serving.result()
        self._base_url = f"http://{host}:{listener.getsockname()[1]}"
        logger.info("gateway listens on %s", self._base_url)

    async def stop(self) -> None:
        """Seal what is still open and close the server. Harmless when not started."""
        self._attempts.seal_all()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        self._server = self._serving = None
        self._base_url = ""

    def open(
        self, rollout_id: str, attempt_id: str, *, sampling: SamplingParams, training: bool
    ) -> ModelResource:
        """Start capturing an attempt; see `RolloutGateway.open`. The key in the result opens nothing else.

        Raises:
            ValueError: the attempt exists, or its sampling could not be trained on.
        """
        if training:
            check_trainable(sampling)
        path = f"/rollouts/{quote(rollout_id, safe='')}/{quote(attempt_id, safe='')}/v1"
        base_url = self.base_url + path
        attempt = self._attempts.open(rollout_id, attempt_id, sampling=sampling, training=training)
        return ModelResource(
            model_name=self._calls.model_name, base_url=base_url, api_key=SecretStr(attempt.issue_key())
        )

    async def chat(
        self,
        rollout_id: str,
        attempt_id: str,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
    ) -> dict[str, Any]:
        """Sample one assistant message without HTTP; captured like any other call.

        Returns:
            The message: role, content, and tool_calls where the model made some.
        Raises:
            RequestRefused: what over HTTP would have been a 4xx, the attempt's end included.
            EngineError: the engine gave up.
        """
        attempt = self._attempts.find(rollout_id, attempt_id)
        request = checked_request({"messages": messages, "tools": tools})
        with self._calls.begin(attempt, request) as call:
            await call.finish()
            reply = call.reply()
        return reply["choices"][0]["message"]

    def close(self, rollout_id: str, attempt_id: str) -> tuple[Turn, ...]:
        """Seal the attempt, abort its calls under way, and give its turns in order of completion.

        Raises:
            RequestRefused: the attempt was never opened, or is closed already.
        """
        attempt = self._attempts.find(rollout_id, attempt_id)
        turns = self._attempts.seal(rollout_id, attempt_id)
        if self._calls.spans is not None:
            self._calls.spans.sealed(attempt)
        return turns

    def prompt_length(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> int:
        """Tokens of the rendered prompt, generation prompt included.

        Raises:
            RequestRefused: messages or tools that the model's template cannot take.
        """
        return len(self._renderer.prompt(messages, tools).token_ids)
