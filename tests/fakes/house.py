"""A real gateway over a scripted engine, with the official clients at hand.

`from fakes.house import House`; tests/contract/gateway makes one for each test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import openai
from transformers import PreTrainedTokenizerFast

from fakes.sampler import FakeSampler
from strop.inference.gateway import Gateway
from strop.schema.function import ModelResource
from strop.schema.sampling import SamplingParams
from strop.schema.trajectory import Turn

SAMPLING = SamplingParams(max_tokens=64)


@dataclass
class House:
    """What a test talks to. Clients made here are closed with it."""

    tokenizer: PreTrainedTokenizerFast
    sampler: FakeSampler
    gateway: Gateway
    clients: list[openai.AsyncOpenAI] = field(default_factory=list[openai.AsyncOpenAI])

    def open(
        self, rollout_id: str = "r", *, sampling: SamplingParams = SAMPLING, training: bool = True
    ) -> ModelResource:
        return self.gateway.open(rollout_id, "1", sampling=sampling, training=training)

    def client(self, resource: ModelResource, **options: Any) -> openai.AsyncOpenAI:
        key = resource.api_key.get_secret_value()
        client = openai.AsyncOpenAI(base_url=resource.base_url, api_key=key, **options)
        self.clients.append(client)
        return client

    def close(self, rollout_id: str = "r") -> tuple[Turn, ...]:
        return self.gateway.close(rollout_id, "1")

    def text(self, ids: tuple[int, ...]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))
