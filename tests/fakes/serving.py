"""A served model that listens in the test's event loop, with the official clients at hand.

`from fakes.serving import Shop, served_model`; tests/contract/serving makes one for each test.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import openai
from transformers import PreTrainedTokenizerFast

from strop.inference.chat.endpoint import GuestServer, bind
from strop.inference.chat.render import Renderer
from strop.inference.chat.sampler import Sampler
from strop.inference.serving.app import create_app
from strop.inference.serving.metrics import ServingMetrics
from strop.inference.serving.models import Places, ReadAdapter, ServedModel, ServedModels


def served_model(
    sampler: Sampler,
    tokenizer: PreTrainedTokenizerFast,
    *,
    name: str = "tiny",
    max_length: int = 300,
    num_running: int = 8,
    num_waiting: int = 8,
    **more: Any,
) -> ServedModel:
    return ServedModel(
        name=name,
        sampler=sampler,
        renderer=Renderer(tokenizer),
        max_length=max_length,
        places=Places(num_running=num_running, num_waiting=num_waiting),
        metrics=ServingMetrics(),
        created=1,
        fingerprint="weights-1",
        **more,
    )


@dataclass
class Shop:
    """Starts a model's server, with `read` one that takes adapters; clients made here are closed with it."""

    model: ServedModel
    api_key: str | None = None
    read: ReadAdapter | None = None
    clients: list[openai.AsyncOpenAI] = field(default_factory=list[openai.AsyncOpenAI])
    address: str = ""

    async def open(self, *, grace_s: float = 5) -> None:
        listener = bind("127.0.0.1", 0)
        self.models = ServedModels(self.model, read=self.read)
        app = create_app(self.models, api_key=self.api_key)
        self.server = GuestServer(app, grace_s=grace_s, on_last_call=self.models.stop_all)
        self.serving = asyncio.create_task(self.server.serve(sockets=[listener]))
        await self.server.listening.wait()
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def client(self, **options: Any) -> openai.AsyncOpenAI:
        options = {"api_key": self.api_key or "any", "max_retries": 0, **options}
        client = openai.AsyncOpenAI(base_url=f"{self.address}/v1", **options)
        self.clients.append(client)
        return client

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        self.models.stop_all()
        self.server.should_exit = True
        await self.serving
