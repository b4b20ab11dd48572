"""What a served model refuses, how it holds back, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from fakes.sampler import FakeSampler, until
from fakes.serving import Shop, served_model
from strop.errors import EngineError
from strop.inference.chat.endpoint import BODY_LIMIT, bind
from strop.inference.serving.models import ServedModels
from strop.inference.serving.process import serve

Hello = Callable[..., dict[str, Any]]


async def drained(stream: Any) -> None:
    async for _ in stream:
        continue


async def test_a_prompt_that_leaves_no_room_gets_the_error_that_clients_know(
    shop: Shop, hello: Hello
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await shop.client().chat.completions.create(**hello("what is 12 " * 60))
    assert refused.value.code == "context_length_exceeded"
    assert refused.value.param == "messages"
    assert "maximum context length is 200 tokens" in refused.value.message


async def test_another_model_is_404_and_names_the_one_served(shop: Shop, hello: Hello) -> None:
    with pytest.raises(openai.NotFoundError, match="served: 'tiny'") as refused:
        await shop.client().chat.completions.create(**{**hello(), "model": "gpt-4"})
    assert refused.value.code == "model_not_found"


async def test_a_setting_that_cannot_be_honoured_is_refused_by_name(shop: Shop, hello: Hello) -> None:
    with pytest.raises(openai.BadRequestError, match="frequency_penalty") as refused:
        await shop.client().chat.completions.create(**hello(frequency_penalty=0.5))
    assert refused.value.param == "frequency_penalty"


async def test_a_body_beyond_the_limit_is_413(shop: Shop, hello: Hello) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        await shop.client().chat.completions.create(**hello("x" * BODY_LIMIT))
    assert refused.value.status_code == 413


async def test_with_a_key_only_that_key_asks_and_health_needs_none(script: FakeSampler, hello: Hello) -> None:
    shop = Shop(served_model(script, script.tokenizer), api_key="right")
    await shop.open()
    try:
        assert (await shop.client().chat.completions.create(**hello())).choices[0].message.content == "hello"
        with pytest.raises(openai.AuthenticationError) as refused:
            await shop.client(api_key="wrong").chat.completions.create(**hello())
        assert refused.value.code == "invalid_api_key"
        with pytest.raises(openai.AuthenticationError):
            await shop.client(api_key="wrong").models.list()
        async with httpx.AsyncClient() as plain:
            health = await plain.get(f"{shop.address}/healthz")
            keyless = await plain.post(f"{shop.address}/v1/chat/completions", json=hello())
        assert health.json() == {"status": "healthy", "model": "tiny"}
        assert keyless.status_code == 401
    finally:
        await shop.close()


async def test_beyond_the_queue_calls_are_429_with_a_time_until_places_are_free(
    scripted: Shop, script: FakeSampler, hello: Hello
) -> None:
    script.allow(0)
    client = scripted.client()
    calls = [asyncio.create_task(client.chat.completions.create(**hello())) for _ in range(3)]
    await until(lambda: scripted.model.places.taken == 3)
    for stream in (False, True):
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(**hello(stream=stream))
        assert refused.value.code == "queue_full"
        assert int(refused.value.response.headers["retry-after"]) >= 1
    script.allow(1000)
    assert [one.choices[0].message.content for one in await asyncio.gather(*calls)] == ["hello"] * 3
    assert scripted.model.places.taken == 0
    assert (await client.chat.completions.create(**hello())).choices[0].message.content == "hello"
    assert b'strop_calls_total{outcome="refused"} 2.0' in scripted.model.metrics.text()


async def test_more_choices_than_there_will_ever_be_places_for_are_400(scripted: Shop, hello: Hello) -> None:
    with pytest.raises(openai.BadRequestError, match="at most 3 choices") as refused:
        await scripted.client().chat.completions.create(**hello(n=4))
    assert refused.value.param == "n"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_place_and_the_engine(
    scripted: Shop, script: FakeSampler, hello: Hello, stream: bool
) -> None:
    script.allow(1)
    call = asyncio.create_task(scripted.client().chat.completions.create(**hello(stream=stream)))
    await until(lambda: scripted.model.places.taken == 1)
    if stream:
        await (await call).close()
    else:
        call.cancel()
    await until(lambda: scripted.model.places.taken == 0)
    assert [one.aborted for one in script.generations] == [True]
    assert b'strop_calls_total{outcome="abandoned"} 1.0' in scripted.model.metrics.text()


async def test_when_it_stops_calls_end_with_an_error_after_the_grace(
    scripted: Shop, script: FakeSampler, hello: Hello
) -> None:
    await scripted.close()
    scripted.model.stopping = False
    await scripted.open(grace_s=0)
    script.allow(2)
    stream = await scripted.client().chat.completions.create(**hello(stream=True))
    scripted.server.should_exit = True
    with pytest.raises(openai.APIError, match="is stopping"):
        await drained(stream)
    await scripted.serving
    assert scripted.model.places.taken == 0


async def test_an_engine_that_has_failed_is_unhealthy_and_ends_the_process(script: FakeSampler) -> None:
    broken: list[Exception] = []
    model = served_model(script, script.tokenizer, failure=lambda: broken[0] if broken else None)
    ports: list[int] = []
    serving = asyncio.create_task(
        serve(ServedModels(model), bind("127.0.0.1", 0), api_key=None, on_ready=ports.append, grace_s=1)
    )
    await until(lambda: bool(ports))
    broken.append(EngineError("the engine's thread failed"))
    async with httpx.AsyncClient() as plain:
        health = await plain.get(f"http://127.0.0.1:{ports[0]}/healthz")
    assert health.status_code == 503
    assert "the engine's thread failed" in health.json()["reason"]
    with pytest.raises(EngineError, match="the engine's thread failed"):
        await serving


def test_an_address_that_is_taken_says_so() -> None:
    from strop.errors import StropError

    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(StropError, match="cannot listen on 127"):
            bind("127.0.0.1", taken.getsockname()[1])
