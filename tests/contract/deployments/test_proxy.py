"""The official client through the server: routed, limited, streamed, and told of what breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import httpx
import openai
import orjson
import pytest

from fakes.sampler import until
from strop.doors.openai.proxy import Forwarded
from strop.service.calls import Call
from strop.service.fleet import Fleet

from .conftest import Plane

Hello = Callable[..., dict[str, Any]]


async def drained(stream: Any) -> str:
    """All the text of a stream, which is read to its end."""
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


@pytest.mark.parametrize("path", ["/v1", "/compatible-mode/v1"])
async def test_an_answer_comes_whole_and_as_a_stream(plane: Plane, hello: Hello, path: str) -> None:
    name = await plane.deploy()
    client = plane.client(path=path)
    answer = await client.chat.completions.create(**hello(name))
    assert answer.choices[0].message.content == "hello"
    assert answer.model == name
    chunks = [chunk async for chunk in await client.chat.completions.create(**hello(name, stream=True))]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "hello"
    assert all(chunk.usage is None for chunk in chunks)
    assert [model.id for model in (await client.models.list()).data] == [name]


async def test_a_stream_comes_piece_by_piece(plane: Plane, hello: Hello) -> None:
    name = await plane.deploy()
    script = plane.barracks.started[0].script
    script.answer = lambda ids, params: "one two three"
    script.allow(1)
    stream = await plane.client().chat.completions.create(**hello(name, stream=True))
    said = ""
    async for chunk in stream:
        said += chunk.choices[0].delta.content or ""
        if said == "one two three":
            break
        script.allow(1)
    assert said == "one two three"


async def test_wrong_keys_foreign_models_and_bad_bodies_are_told_in_openais_form(
    plane: Plane, hello: Hello
) -> None:
    name = await plane.deploy()
    with pytest.raises(openai.AuthenticationError):
        await plane.client("wrong").chat.completions.create(**hello(name))
    for key, model in ((plane.other_key, name), (plane.key, "tiny")):
        with pytest.raises(openai.NotFoundError) as missing:
            await plane.client(key).chat.completions.create(**hello(model))
        assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="frequency_penalty"):
        await plane.client().chat.completions.create(**hello(name, frequency_penalty=1))
    headers = {"authorization": f"Bearer {plane.key}"}
    async with httpx.AsyncClient() as plain:
        for content in (b"{", b"[]", b'{"model": 3}'):
            reply = await plain.post(f"{plane.url}/v1/chat/completions", content=content, headers=headers)
            assert reply.status_code == 400
            assert reply.json()["error"]["type"] == "invalid_request_error"


async def test_calls_at_once_go_to_the_least_busy_replica(plane: Plane, hello: Hello) -> None:
    name = await plane.deploy(capacity=2)
    scripts = [replica.script for replica in plane.barracks.started]
    for script in scripts:
        script.allow(0)
    client = plane.client()
    calls = [asyncio.create_task(client.chat.completions.create(**hello(name))) for _ in range(6)]
    await until(lambda: sum(len(script.submitted) for script in scripts) == 6)
    assert [len(script.submitted) for script in scripts] == [3, 3]
    for script in scripts:
        script.allow(1000)
    await asyncio.gather(*calls)
    assert [replica.num_in_flight for replica in plane.barracks.started] == [0, 0]


async def test_beyond_the_calls_a_minute_it_is_429_until_the_limit_is_lifted(
    plane: Plane, hello: Hello
) -> None:
    name = await plane.deploy(rpm_limit=2)
    client = plane.client()
    for _ in range(2):
        await client.chat.completions.create(**hello(name))
    with pytest.raises(openai.RateLimitError) as refused:
        await client.chat.completions.create(**hello(name))
    assert refused.value.code == "rate_limit_exceeded"
    assert 50 < int(refused.value.response.headers["retry-after"]) <= 60
    updated = await plane.output("PUT", f"/deployments/{name}/update", {"rpm_limit": None})
    assert "rpm_limit" not in updated
    await client.chat.completions.create(**hello(name))


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_of_whole_and_streamed_answers_count_against_the_limit(
    plane: Plane, hello: Hello, stream: bool
) -> None:
    name = await plane.deploy()
    client = plane.client()
    usage = (await client.chat.completions.create(**hello(name))).usage
    assert usage is not None
    await plane.output("PUT", f"/deployments/{name}/update", {"tpm_limit": usage.total_tokens + 1})
    for _ in range(2):  # the second is let through with one token left, and leaves none
        answer = await client.chat.completions.create(**hello(name, stream=stream))
        if stream:
            assert [chunk async for chunk in answer]
    with pytest.raises(openai.RateLimitError, match="tokens a minute"):
        await client.chat.completions.create(**hello(name))
    traffic = plane.fleets.all()[name].traffic
    assert traffic.prompt_tokens + traffic.completion_tokens == 3 * usage.total_tokens


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_frees_the_engine(plane: Plane, hello: Hello, stream: bool) -> None:
    name = await plane.deploy()
    [replica] = plane.barracks.started
    replica.script.allow(1)
    call = asyncio.create_task(plane.client().chat.completions.create(**hello(name, stream=stream)))
    await until(lambda: len(replica.script.generations) == 1)
    if stream:
        await (await call).close()
    else:
        call.cancel()
    await until(lambda: replica.script.generations[0].aborted)
    await until(lambda: replica.num_in_flight == 0)
    assert plane.fleets.all()[name].traffic.calls[499] == 1


async def test_a_replica_that_dies_in_a_stream_ends_it_with_an_error_and_others_go_on(
    plane: Plane, hello: Hello
) -> None:
    name = await plane.deploy(capacity=2)
    client = plane.client()
    for replica in plane.barracks.started:
        replica.script.allow(1)
    first, second = [await client.chat.completions.create(**hello(name, stream=True)) for _ in range(2)]
    lost, other = plane.barracks.started
    await lost.die()
    with pytest.raises(openai.APIError, match="was lost") as broken:
        await drained(first)
    assert broken.value.code == "replica_lost"
    other.script.allow(1000)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in second]) == "hello"
    await until(lambda: plane.fleets.num_ready(name) == 2)
    assert (await client.chat.completions.create(**hello(name))).choices[0].message.content == "hello"


async def test_a_call_whose_replica_dies_before_its_answer_is_answered_by_another(
    plane: Plane, hello: Hello
) -> None:
    name = await plane.deploy(capacity=2)
    lost, other = plane.barracks.started
    lost.script.allow(0)
    call = asyncio.create_task(plane.client().chat.completions.create(**hello(name)))
    await until(lambda: len(lost.script.submitted) == 1)
    await lost.die()
    assert (await call).choices[0].message.content == "hello"
    assert len(other.script.submitted) == 1


async def test_while_no_replica_answers_it_is_503_with_the_reason(plane: Plane, hello: Hello) -> None:
    plane.barracks.may_start.clear()
    await plane.output("POST", "/deployments", {"model_name": "tiny", "suffix": "a"})
    with pytest.raises(openai.InternalServerError, match="being deployed") as refused:
        await plane.client().chat.completions.create(**hello("tiny-a"))
    assert refused.value.status_code == 503
    assert refused.value.response.headers["retry-after"] == "5"
    assert refused.value.code == "model_not_ready"


async def test_the_servers_metrics_count_the_calls_of_each_deployment(plane: Plane, hello: Hello) -> None:
    name = await plane.deploy(capacity=2)
    usage = (await plane.client().chat.completions.create(**hello(name))).usage
    assert usage is not None
    lines = (await plane.call("GET", "/metrics")).text.splitlines()
    label = f'{{deployed_model="{name}"'
    assert f"strop_deployment_replicas_ready{label}}} 2" in lines
    assert f'strop_deployment_calls_total{label},status="200"}} 1' in lines
    assert f"strop_deployment_prompt_tokens_total{label}}} {usage.prompt_tokens}" in lines
    assert f"strop_deployment_completion_tokens_total{label}}} {usage.completion_tokens}" in lines


async def test_answers_under_way_when_the_server_stops_end_with_a_word(plane: Plane, hello: Hello) -> None:
    name = await plane.deploy()
    script = plane.barracks.started[0].script
    script.answer = lambda ids, params: "one two three"
    script.allow(1)
    async with openai.AsyncOpenAI(base_url=f"{plane.url}/v1", api_key=plane.key, max_retries=0) as client:
        stream = await client.chat.completions.create(**hello(name, stream=True))
        await anext(aiter(stream))
        whole = asyncio.create_task(client.chat.completions.create(**hello(name)))
        await until(lambda: len(script.submitted) == 2)
        await plane.restart()
        with pytest.raises(openai.APIError, match="the server is stopping; call again"):
            await drained(stream)
        with pytest.raises(openai.InternalServerError, match="the server is stopping; call again"):
            await whole
    await until(lambda: plane.fleets.num_ready(name) == 1)
    assert (await plane.client().chat.completions.create(**hello(name))).choices[0].message.content


async def cut_off(plane: Plane, name: str, body: bytes, held: Callable[[Any], bool]) -> list[dict[str, Any]]:
    """What a client that takes its reply slowly is sent by a server whose grace is over while the first
    message that is `held` is on its way.
    """
    sent: list[dict[str, Any]] = []
    stuck = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message)
        if held(message) and not stuck.is_set():
            stuck.set()
            await asyncio.Event().wait()

    async def receive() -> Any:
        return await asyncio.Event().wait()

    fleets = plane.fleets
    deployed = fleets.find(name, "default")
    assert deployed is not None
    reply = Forwarded(Call(deployed, fleets.client, body))
    call = asyncio.create_task(reply({"type": "http"}, receive, send))
    await stuck.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    return sent


def is_head(message: Any) -> bool:
    return message["type"] == "http.response.start"


def is_body(message: Any) -> bool:
    return message["type"] == "http.response.body"


def is_last(message: Any) -> bool:
    return is_body(message) and not message.get("more_body", False)


@pytest.mark.parametrize(
    ("stream", "held"), [(False, is_head), (False, is_body), (True, is_head), (True, is_last)]
)
async def test_a_server_that_stops_adds_nothing_to_a_reply_that_has_its_end_or_its_length(
    plane: Plane, hello: Hello, stream: bool, held: Callable[[Any], bool]
) -> None:
    name = await plane.deploy()
    head, *rest = await cut_off(plane, name, orjson.dumps(hello(name, stream=stream)), held)
    ends = [one for one in rest if is_last(one)]
    assert len(ends) == 1
    if stream and held is is_head:
        assert b"the server is stopping" in ends[0]["body"]
    elif not stream:
        length = int(dict(head["headers"])[b"content-length"])
        assert [len(one["body"]) for one in rest] == [length]


@pytest.mark.parametrize("held", [is_head, is_body])
async def test_a_server_that_stops_adds_nothing_to_a_refusal(
    plane: Plane, hello: Hello, held: Callable[[Any], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await plane.deploy()
    monkeypatch.setattr(Fleet, "least_busy", lambda self, other_than: None)
    head, body = await cut_off(plane, name, orjson.dumps(hello(name)), held)
    assert (head["status"], is_last(body)) == (503, True)
    assert orjson.loads(body["body"])["error"]["code"] == "model_not_ready"
    assert int(dict(head["headers"])[b"content-length"]) == len(body["body"])


async def test_a_server_that_stops_adds_nothing_to_a_stream_whose_replica_was_lost(
    plane: Plane, hello: Hello, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await plane.deploy()

    async def lost(self: Any) -> Any:
        raise aiohttp.ClientPayloadError
        yield b""

    monkeypatch.setattr(aiohttp.StreamReader, "iter_any", lost)
    head, body = await cut_off(plane, name, orjson.dumps(hello(name, stream=True)), is_last)
    assert (head["status"], is_last(body)) == (200, True)
    assert b"replica_lost" in body["body"]
