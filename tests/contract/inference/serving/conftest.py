"""A real engine on a tiny random model, or a scripted one, behind a served model's address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from fakes.families import engine_of
from fakes.model import tiny_llama
from fakes.sampler import FakeSampler
from fakes.serving import Shop, served_model
from fakes.tokenizer import CHATML_TOOLS, tiny_tokenizer
from strop.inference.local import Engine, EngineConfig


@pytest.fixture(scope="package")
def engine() -> Iterator[Engine]:
    config = EngineConfig(dtype="float32", max_length=200, max_sequences=8)
    with engine_of(tiny_llama(), tiny_tokenizer(), config) as started:
        yield started


@pytest.fixture
async def shop(engine: Engine) -> AsyncIterator[Shop]:
    """Serves the tiny model."""
    made = Shop(served_model(engine, tiny_tokenizer(), max_length=200, failure=lambda: engine.failure))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def script() -> FakeSampler:
    return FakeSampler(tiny_tokenizer(CHATML_TOOLS))


@pytest.fixture
async def scripted(script: FakeSampler) -> AsyncIterator[Shop]:
    """Serves what `script` says; two answers at a time and one waiting."""
    made = Shop(served_model(script, script.tokenizer, num_running=2, num_waiting=1))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def hello() -> Callable[..., dict[str, Any]]:
    """The least that `chat.completions.create` takes, and whatever a test adds."""

    def arguments(content: str = "hello", **more: Any) -> dict[str, Any]:
        return {"model": "tiny", "messages": [{"role": "user", "content": content}], **more}

    return arguments
