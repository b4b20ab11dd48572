"""A gateway that listens, a scripted engine behind it, and the official clients in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fakes.house import House
from fakes.sampler import FakeSampler
from fakes.tokenizer import CHATML_TOOLS, tiny_tokenizer
from strop.inference.gateway import Gateway


@pytest.fixture
async def house() -> AsyncIterator[House]:
    tokenizer = tiny_tokenizer(CHATML_TOOLS)
    sampler = FakeSampler(tokenizer)
    gateway = Gateway(sampler, tokenizer, model_name="policy", max_length=300, seed=1)
    await gateway.start()
    made = House(tokenizer=tokenizer, sampler=sampler, gateway=gateway)
    yield made
    for client in made.clients:
        await client.close()
    await gateway.stop()


@pytest.fixture
def hello() -> Callable[..., dict[str, Any]]:
    """The least that `chat.completions.create` takes, and whatever a test adds."""

    def arguments(content: str = "hello", **more: Any) -> dict[str, Any]:
        return {"model": "any", "messages": [{"role": "user", "content": content}], **more}

    return arguments
