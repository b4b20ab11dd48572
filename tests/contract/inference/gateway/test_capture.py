"""Exactly one turn for each accepted generation: retries, lost clients, many rollouts at once, late calls."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from fakes.house import SAMPLING, House
from fakes.sampler import FakeSampler, until
from fakes.tokenizer import CHATML_TOOLS, tiny_tokenizer
from strop.inference.gateway import Gateway
from strop.schema.function import ModelResource
from strop.schema.sampling import SamplingParams
from strop.schema.trajectory import Turn

Hello = Callable[..., dict[str, Any]]


async def drained(stream: openai.AsyncStream[Any]) -> None:
    async for _ in stream:
        continue


def headers(resource: ModelResource, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {resource.api_key.get_secret_value()}", **more}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_aborts_its_generation_and_leaves_no_turn(
    house: House, hello: Hello, stream: bool
) -> None:
    house.sampler.answer = lambda prompt_ids, params: "Having hello"
    house.sampler.allow(1)
    client = house.client(house.open())
    call = asyncio.create_task(client.chat.completions.create(**hello(stream=stream)))
    if stream:
        await (await call).close()
    else:
        await until(lambda: len(house.sampler.submitted) == 1)
        call.cancel()
    await until(lambda: house.sampler.generations[0].aborted)
    await until(lambda: house.gateway.stats.aborted_calls == 1)
    house.sampler.allow(100)
    assert house.close() == ()


async def test_a_call_that_timed_out_and_was_repeated_is_one_turn(house: House, hello: Hello) -> None:
    house.sampler.allow(1)
    client = house.client(house.open(), max_retries=1, timeout=0.3)
    call = asyncio.create_task(client.chat.completions.create(**hello()))
    await until(lambda: len(house.sampler.submitted) == 2)
    house.sampler.allow(100)
    assert (await call).choices[0].message.content == "hello"
    assert house.sampler.generations[0].aborted
    assert len(house.close()) == 1
    first, second = house.sampler.submitted
    assert first == second  # its seed too: what failed does not count as sampled


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mark", [{"x-stainless-retry-count": "1"}, {"idempotency-key": "k"}])
async def test_a_repeated_call_that_was_answered_gets_the_captured_answer_again(
    house: House, hello: Hello, mark: dict[str, str], stream: bool
) -> None:
    answers = iter(["hello", "Having"])
    house.sampler.answer = lambda prompt_ids, params: next(answers)
    client = house.client(house.open())
    first_mark = {} if "x-stainless-retry-count" in mark else mark

    async def ask(extra: dict[str, str]) -> tuple[str, str]:
        answer = await client.chat.completions.create(**hello(stream=stream, extra_headers=extra))
        if not stream:
            return answer.id, answer.choices[0].message.content
        events = [event async for event in answer]
        return events[0].id, "".join(event.choices[0].delta.content or "" for event in events)

    first, again = await ask(first_mark), await ask(mark)
    assert first == again
    assert first[1] == "hello"
    assert house.gateway.stats.replayed_calls == 1
    assert house.gateway.stats.model_calls == 1
    assert len(house.close()) == 1


async def test_a_replayed_stream_carries_logprobs_and_usage(house: House, hello: Hello) -> None:
    client = house.client(house.open())
    arguments = hello(stream=True, logprobs=True, n=2, stream_options={"include_usage": True})

    async def ask(retries: str) -> tuple[list[str], list[list[float]], int]:
        texts, logprobs, total = ["", ""], [[], []], 0
        extra = {"x-stainless-retry-count": retries}
        async for event in await client.chat.completions.create(**arguments, extra_headers=extra):
            total = event.usage.total_tokens if event.usage else total
            for choice in event.choices:
                texts[choice.index] += choice.delta.content or ""
                if choice.logprobs:
                    logprobs[choice.index] += [token.logprob for token in choice.logprobs.content]
        return texts, logprobs, total

    assert await ask("0") == await ask("1")
    assert len(house.close()) == 2


async def test_the_same_call_made_twice_on_purpose_is_two_turns_with_two_seeds(
    house: House, hello: Hello
) -> None:
    client = house.client(house.open())
    for _ in range(2):
        await client.chat.completions.create(**hello())
    assert len(house.close()) == 2
    assert len({one.params.seed for one in house.sampler.submitted}) == 2


async def test_two_calls_at_once_with_one_idempotency_key_are_one_turn(house: House, hello: Hello) -> None:
    house.sampler.allow(1)
    client = house.client(house.open())
    ask = hello(extra_headers={"idempotency-key": "k"})
    calls = [asyncio.create_task(client.chat.completions.create(**ask)) for _ in range(2)]
    await until(lambda: len(house.sampler.submitted) == 1)
    house.sampler.allow(100)
    one, other = await asyncio.gather(*calls)
    assert one.id == other.id
    assert len(house.sampler.submitted) == 1
    assert len(house.close()) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_under_way_at_close_is_aborted_and_gets_409(
    house: House, hello: Hello, stream: bool
) -> None:
    house.sampler.answer = lambda prompt_ids, params: "Having hello"
    client = house.client(house.open(), max_retries=3)
    await client.chat.completions.create(**hello("first"))
    house.sampler.allow(0)
    call = asyncio.create_task(client.chat.completions.create(**hello("second", stream=stream)))
    await until(lambda: len(house.sampler.submitted) == 2)
    turns = house.close()
    with pytest.raises(openai.ConflictError):
        await call
    assert [turn.messages[0]["content"] for turn in turns] == ["first"]
    assert house.sampler.generations[1].aborted
    assert len(house.sampler.submitted) == 2


async def test_a_stream_that_has_begun_is_ended_by_close_with_an_error_event(
    house: House, hello: Hello
) -> None:
    house.sampler.answer = lambda prompt_ids, params: "Having hello"
    house.sampler.allow(1)
    stream = await house.client(house.open()).chat.completions.create(**hello(stream=True))
    assert house.close() == ()
    with pytest.raises(openai.APIError, match="has ended"):
        await drained(stream)


async def test_a_call_without_http_that_is_cancelled_leaves_no_turn(house: House, hello: Hello) -> None:
    house.open()
    house.sampler.allow(1)
    call = asyncio.create_task(house.gateway.chat("r", "1", hello()["messages"], None))
    await until(lambda: len(house.sampler.submitted) == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert house.sampler.generations[0].aborted
    assert house.close() == ()


async def test_turns_stand_in_order_of_completion(house: House, hello: Hello) -> None:
    answers = iter(["Having hello Having hello", "hello"])
    house.sampler.answer = lambda prompt_ids, params: next(answers)
    client = house.client(house.open())
    slow = asyncio.create_task(client.chat.completions.create(**hello("slow")))
    house.sampler.allow(0)
    await until(lambda: len(house.sampler.submitted) == 1)
    quick = asyncio.create_task(client.chat.completions.create(**hello("quick")))
    await until(lambda: len(house.sampler.submitted) == 2)
    house.sampler.allow(100)
    await asyncio.gather(slow, quick)
    turns = house.close()
    assert [turn.messages[0]["content"] for turn in turns] == ["quick", "slow"]
    assert [turn.index for turn in turns] == [0, 1]


async def test_sixty_four_rollouts_at_once_never_mix(house: House) -> None:
    """Each answer is the prompt's last message, so a swapped answer, key or record shows in the texts."""

    def echo(prompt_ids: tuple[int, ...], params: SamplingParams) -> str:
        text = str(house.tokenizer.decode(list(prompt_ids)))
        return text.rsplit("<|im_start|>user\n", 1)[1].split("<|im_end|>")[0] + "!"

    house.sampler.answer = echo
    rng = random.Random(0)
    # Eight agents share a client; a single pool for all 64 would spend the time on its own bookkeeping.
    shared = [httpx.AsyncClient(timeout=60) for _ in range(8)]

    async def post(number: int, resource: ModelResource, messages: list[dict[str, Any]]) -> dict[str, Any]:
        reply = await shared[number % 8].post(
            f"{resource.base_url}/chat/completions", json={"messages": messages}, headers=headers(resource)
        )
        return reply.json()["choices"][0]["message"]

    async def agent(number: int) -> tuple[Turn, ...]:
        name = f"r{number}"
        resource = house.open(name)
        messages: list[dict[str, Any]] = []
        for turn in range(3):
            messages.append({"role": "user", "content": f"{number} turn {turn}"})
            # A subagent speaks on its own between the main agent's turns.
            aside = [{"role": "user", "content": f"{number} aside {turn}"}]
            main, sub = await asyncio.gather(post(number, resource, messages), post(number, resource, aside))
            assert main["content"] == f"{number} turn {turn}!"
            assert sub["content"] == f"{number} aside {turn}!"
            messages.append(main)
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
        return house.close(name)

    everything = await asyncio.gather(*(agent(number) for number in range(64)))
    for client in shared:
        await client.aclose()
    for number, turns in enumerate(everything):
        texts = [house.text(turn.completion_ids) for turn in turns]
        assert sorted(texts) == sorted(
            f"{number} {kind} {turn}!" for turn in range(3) for kind in ("turn", "aside")
        )
        main = [turn for turn in turns if "turn" in turn.messages[0]["content"]]
        for before, after in itertools.pairwise(main):
            history = (*before.prompt_ids, *before.completion_ids)
            assert after.prompt_ids[: len(history)] == history
    assert house.gateway.stats.turns == 64 * 6
    assert house.gateway.stats.model_calls == 64 * 6
    assert house.gateway.stats.model_latency_s == pytest.approx(
        sum(turn.latency_s for turns in everything for turn in turns)
    )


async def _seeds(
    order: list[int], sampling: SamplingParams, *, seed: int = 1, **fields: Any
) -> dict[str, int | None]:
    """Seeds by rollout and prompt, of equal calls made in a given order."""
    tokenizer = tiny_tokenizer(CHATML_TOOLS)
    sampler = FakeSampler(tokenizer)
    gateway = Gateway(sampler, tokenizer, model_name="policy", max_length=200, seed=seed)
    await gateway.start()
    try:
        keys = [(f"r{number % 2}", f"prompt {number // 2 % 2}") for number in order]
        clients = {}
        for name in ("r0", "r1"):
            resource = gateway.open(name, "1", sampling=sampling, training=True)
            clients[name] = openai.AsyncOpenAI(
                base_url=resource.base_url, api_key=resource.api_key.get_secret_value()
            )
        found: dict[str, int | None] = {}
        for name, prompt in keys:
            messages = [{"role": "user", "content": prompt}]
            await clients[name].chat.completions.create(model="m", messages=messages, **fields)
            again = f"{name} {prompt} again"
            found[again if f"{name} {prompt}" in found else f"{name} {prompt}"] = sampler.submitted[
                -1
            ].params.seed
        for client in clients.values():
            await client.close()
        return found
    finally:
        await gateway.stop()


async def test_seeds_do_not_depend_on_the_order_in_which_calls_arrive() -> None:
    straight = await _seeds([0, 1, 2, 3, 0, 1], SAMPLING)
    crossed = await _seeds([3, 1, 0, 1, 0, 2], SAMPLING)
    assert straight == crossed
    assert len(set(straight.values())) == 6
    assert await _seeds([0, 1, 2, 3, 0, 1], SAMPLING, seed=2) != straight


async def test_the_seed_of_an_attempt_stands_for_its_ids() -> None:
    own = SamplingParams(max_tokens=8, seed=7)
    found = await _seeds([0, 1, 2, 3], own)
    assert found["r0 prompt 0"] == found["r1 prompt 0"]
    assert found["r0 prompt 0"] != found["r0 prompt 1"]
    assert await _seeds([0, 1, 2, 3], own, seed=99) == found


async def test_a_seed_of_the_agent_makes_its_equal_calls_equal_but_not_its_siblings() -> None:
    found = await _seeds([0, 0, 1], SAMPLING, seed=1)
    fixed = await _seeds([0, 0, 1], SAMPLING, extra_body={"seed": 5})
    assert found["r0 prompt 0"] != found["r0 prompt 0 again"]
    assert fixed["r0 prompt 0"] == fixed["r0 prompt 0 again"]
    assert fixed["r0 prompt 0"] != fixed["r1 prompt 0"]
    assert fixed["r0 prompt 0"] != found["r0 prompt 0"]


async def test_a_rollout_without_calls_gives_no_turns(house: House) -> None:
    house.open()
    assert house.close() == ()


async def test_a_gateway_satisfies_the_port_of_the_flow(house: House) -> None:
    from strop.rl.interfaces import RolloutGateway

    port: RolloutGateway = house.gateway
    assert port.prompt_length([{"role": "user", "content": "hello"}], None) > 0
