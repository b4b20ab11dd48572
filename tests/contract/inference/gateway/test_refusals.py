"""Every failure has the status and body that OpenAI's clients understand, and says nothing it should not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from fakes.house import House
from fakes.sampler import FakeSampler, until
from fakes.tokenizer import tiny_tokenizer
from strop.errors import EngineError, StropError
from strop.inference.chat.endpoint import BODY_LIMIT
from strop.inference.gateway import Gateway, RequestRefused
from strop.schema.sampling import SamplingParams

Hello = Callable[..., dict[str, Any]]


async def drained(stream: openai.AsyncStream[Any]) -> None:
    async for _ in stream:
        continue


async def test_a_prompt_that_leaves_no_room_is_the_context_error_clients_know(
    house: House, hello: Hello
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await house.client(house.open()).chat.completions.create(**hello("x7 " * 200))
    assert refused.value.code == "context_length_exceeded"
    assert refused.value.type == "invalid_request_error"
    assert refused.value.param == "messages"
    tokens = house.gateway.prompt_length(hello("x7 " * 200)["messages"], None)
    assert "maximum context length is 300 tokens" in refused.value.message
    assert f"resulted in {tokens} tokens" in refused.value.message
    assert house.close() == ()
    assert house.gateway.stats.refused_calls == 1


async def test_an_answer_may_fill_the_room_to_the_last_token(house: House, hello: Hello) -> None:
    house.sampler.answer = lambda prompt_ids, params: [5] * 500
    resource = house.open(sampling=SamplingParams(max_tokens=500))
    reply = await house.client(resource).chat.completions.create(**hello())
    assert reply.usage is not None
    assert reply.usage.total_tokens == 300
    assert reply.choices[0].finish_reason == "length"


async def test_a_wrong_key_is_401_and_another_attempts_key_is_wrong(house: House, hello: Hello) -> None:
    mine, other = house.open("mine"), house.open("other")
    mixed = mine.model_copy(update={"api_key": other.api_key})
    with pytest.raises(openai.AuthenticationError) as refused:
        await house.client(mixed).chat.completions.create(**hello())
    assert refused.value.code == "invalid_api_key"
    with pytest.raises(openai.AuthenticationError):
        await house.client(mixed).models.list()
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{mine.base_url}/models")).status_code == 401
    assert house.sampler.submitted == []


async def test_an_unknown_rollout_is_404(house: House, hello: Hello) -> None:
    resource = house.open()
    lost = resource.model_copy(update={"base_url": resource.base_url.replace("/r/", "/nobody/")})
    with pytest.raises(openai.NotFoundError) as refused:
        await house.client(lost).chat.completions.create(**hello())
    assert refused.value.code == "unknown_attempt"


async def test_an_endpoint_that_is_not_served_says_which_are(house: House) -> None:
    with pytest.raises(openai.NotFoundError, match="not served here; there are POST /chat/completions"):
        await house.client(house.open()).responses.create(model="m", input="hello")


async def test_a_call_after_close_is_409_at_once_and_is_not_appended(house: House, hello: Hello) -> None:
    client = house.client(house.open(), max_retries=5)
    await client.chat.completions.create(**hello())
    assert len(house.close()) == 1
    with pytest.raises(openai.ConflictError) as refused:
        await client.chat.completions.create(**hello())
    assert refused.value.code == "attempt_ended"
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert refused.value.response.request.headers["x-stainless-retry-count"] == "0"
    assert len(house.sampler.submitted) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", 0), ("top_p", 0.5), ("extra_body", {"top_k": 5}), ("logit_bias", {"5": 1})],
)
async def test_sampling_that_cannot_be_trained_on_is_400(
    house: House, hello: Hello, field: str, value: Any
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await house.client(house.open()).chat.completions.create(**hello(**{field: value}))
    assert refused.value.param == ("top_k" if field == "extra_body" else field)
    assert house.close() == ()


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_error_is_500_repeated_by_the_client_and_then_captured_once(
    house: House, hello: Hello, stream: bool
) -> None:
    resource = house.open()
    client = house.client(resource, max_retries=0)
    house.sampler.answer = lambda prompt_ids, params: [5]

    def refuse(prompt_ids: Any, params: Any) -> Any:
        raise EngineError("not enough KV memory", fix="lower the load")

    house.sampler.answer = refuse
    with pytest.raises(openai.InternalServerError) as failed:
        await client.chat.completions.create(**hello(stream=stream))
    assert failed.value.body == {
        "message": "the engine could not finish this call: not enough KV memory",
        "type": "server_error",
        "param": None,
        "code": "engine_error",
    }
    failures = iter([True, False])
    house.sampler.answer = lambda prompt_ids, params: refuse(0, 0) if next(failures) else "hello"
    await client.with_options(max_retries=1).chat.completions.create(**hello())
    (turn,) = house.close()
    assert house.text(turn.completion_ids) == "hello"


async def test_an_error_in_the_middle_of_n_choices_captures_none(house: House, hello: Hello) -> None:
    lengths = iter([[2], [5, 6, 2]])
    house.sampler.answer = lambda prompt_ids, params: next(lengths)
    house.sampler.error = EngineError("lost")
    with pytest.raises(openai.InternalServerError):
        await house.client(house.open(), max_retries=0).chat.completions.create(**hello(n=2))
    assert all(generation.aborted for generation in house.sampler.generations)
    assert house.close() == ()


async def test_an_error_after_the_stream_has_begun_reaches_the_client_as_an_event(
    house: House, hello: Hello
) -> None:
    house.sampler.answer = lambda prompt_ids, params: "Having hello"
    house.sampler.allow(1)
    stream = await house.client(house.open()).chat.completions.create(**hello(stream=True))
    house.sampler.error = EngineError("lost")
    house.sampler.allow(10)
    with pytest.raises(openai.APIError, match="the engine could not finish this call: lost"):
        await drained(stream)
    assert house.close() == ()


async def test_what_nobody_foresaw_is_500_without_its_trace(
    house: House, hello: Hello, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(prompt_ids: Any, params: Any) -> Any:
        raise ZeroDivisionError("secret detail")

    house.sampler.answer = fail
    resource = house.open()
    with pytest.raises(openai.InternalServerError) as failed:
        await house.client(resource, max_retries=0).chat.completions.create(**hello())
    assert "secret detail" not in failed.value.response.text
    assert "Traceback" not in failed.value.response.text
    assert "ZeroDivisionError" in caplog.text
    assert resource.api_key.get_secret_value() not in caplog.text


async def test_a_body_beyond_the_limit_is_413(house: House, hello: Hello) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        await house.client(house.open()).chat.completions.create(**hello("x" * BODY_LIMIT))
    assert refused.value.status_code == 413


async def test_a_body_that_is_no_json_is_400(house: House) -> None:
    resource = house.open()
    headers = {"authorization": f"Bearer {resource.api_key.get_secret_value()}"}
    async with httpx.AsyncClient() as client:
        reply = await client.post(f"{resource.base_url}/chat/completions", content=b"{", headers=headers)
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"


async def test_keys_are_new_for_each_attempt_and_never_logged(
    house: House, hello: Hello, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="strop"), caplog.at_level(logging.DEBUG, logger="uvicorn"):
        resources = [house.open(f"r{number}") for number in range(3)]
        for resource in resources:
            await house.client(resource).chat.completions.create(**hello())
    keys = {resource.api_key.get_secret_value() for resource in resources}
    assert len(keys) == 3
    assert not any(key in record.getMessage() for key in keys for record in caplog.records)
    assert not any(key in repr(resources) for key in keys)


async def test_calls_without_http_raise_what_http_would_have_said(house: House, hello: Hello) -> None:
    with pytest.raises(RequestRefused, match="there is no attempt '1' of rollout 'r'"):
        await house.gateway.chat("r", "1", hello()["messages"], None)
    house.open()
    house.close()
    with pytest.raises(RequestRefused, match="has ended") as refused:
        await house.gateway.chat("r", "1", hello()["messages"], None)
    assert isinstance(refused.value, StropError)
    assert refused.value.http_status == 409


async def test_an_attempt_is_opened_and_closed_once(house: House) -> None:
    house.open()
    with pytest.raises(ValueError, match="attempt '1' of rollout 'r' is already open"):
        house.open()
    house.close()
    with pytest.raises(ValueError, match="already sealed"):
        house.open()
    with pytest.raises(RequestRefused, match="has ended"):
        house.close()
    with pytest.raises(ValueError, match="nor attempt ids hold a slash"):
        house.gateway.open("r", "a/b", sampling=SamplingParams(max_tokens=1), training=True)


async def test_an_attempt_that_could_not_be_trained_on_is_not_opened(house: House) -> None:
    with pytest.raises(ValueError, match="full distribution"):
        house.open(sampling=SamplingParams(max_tokens=1, temperature=0.0))
    assert house.open(sampling=SamplingParams(max_tokens=1, temperature=0.0), training=False)


async def test_there_is_no_address_before_the_start_nor_a_second_start(house: House) -> None:
    tokenizer = tiny_tokenizer()
    idle = Gateway(FakeSampler(tokenizer), tokenizer, model_name="m", max_length=10, seed=0)
    with pytest.raises(RuntimeError, match="no address before"):
        idle.open("r", "1", sampling=SamplingParams(max_tokens=1), training=True)
    await idle.stop()
    with pytest.raises(RuntimeError, match="already started"):
        await house.gateway.start()


async def test_a_port_in_use_is_named(house: House) -> None:
    tokenizer = tiny_tokenizer()
    second = Gateway(FakeSampler(tokenizer), tokenizer, model_name="m", max_length=10, seed=0)
    port = int(house.gateway.base_url.rsplit(":", 1)[1])
    with pytest.raises(StropError, match=f"cannot listen on 127.0.0.1:{port}"):
        await second.start(port=port)


async def test_stopping_ends_calls_under_way(house: House, hello: Hello) -> None:
    house.sampler.allow(1)
    call = asyncio.create_task(house.client(house.open()).chat.completions.create(**hello()))
    await until(lambda: len(house.sampler.submitted) == 1)
    await house.gateway.stop()
    with pytest.raises(openai.ConflictError):
        await call
