"""What OpenAI's own clients get from the gateway, and what is captured of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from fakes.house import House
from fakes.sampler import logprob_of
from strop.schema.sampling import FinishReason, SamplingParams

TOOL = {"type": "function", "function": {"name": "calculator", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"a":12,  "b":30}}\n</tool_call>'

Hello = Callable[..., dict[str, Any]]


async def test_a_plain_call_is_one_turn_with_the_ids_that_were_sampled(house: House, hello: Hello) -> None:
    house.sampler.policy_version = 3
    reply = await house.client(house.open()).chat.completions.create(**hello("Having", temperature=0.5))
    assert reply.choices[0].message.content == "hello"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.model == "policy"
    assert reply.system_fingerprint == "policy-version-3"
    (turn,) = house.close()
    sampled = (*house.tokenizer.encode("hello", add_special_tokens=False), 2)
    assert turn.completion_ids == sampled
    assert turn.behaviour_logprobs == tuple(logprob_of(token) for token in sampled)
    assert turn.policy_versions == (3,) * len(sampled)
    assert turn.temperature == 0.5
    assert turn.finish_reason is FinishReason.STOP
    assert turn.messages == ({"role": "user", "content": "Having"},)
    assert turn.response == {"role": "assistant", "content": "hello"}
    assert turn.index == 0
    assert turn.latency_s > 0
    prompt = "<|im_start|>user\nHaving<|im_end|>\n<|im_start|>assistant\n"
    assert list(turn.prompt_ids) == house.tokenizer.encode(prompt, add_special_tokens=False)
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (len(turn.prompt_ids), len(sampled))


async def test_the_synchronous_client_is_served_too(house: House, hello: Hello) -> None:
    resource = house.open()
    with openai.OpenAI(base_url=resource.base_url, api_key=resource.api_key.get_secret_value()) as client:
        reply = await asyncio.to_thread(client.chat.completions.create, **hello())
    assert reply.choices[0].message.content == "hello"
    assert len(house.close()) == 1


async def test_a_stream_arrives_while_the_engine_still_samples(house: House, hello: Hello) -> None:
    house.sampler.answer = lambda prompt_ids, params: "Having hello"
    house.sampler.allow(1)
    stream = await house.client(house.open()).chat.completions.create(
        **hello(stream=True, stream_options={"include_usage": True})
    )
    pieces: list[str] = []
    usage = None
    async for event in stream:
        usage = event.usage or usage
        if event.choices and event.choices[0].delta.content:
            pieces.append(event.choices[0].delta.content)
            assert not house.sampler.generations[0].finished  # or the piece came too late to be a stream
            house.sampler.allow(1 if len(pieces) < 2 else 100)
            if len(pieces) == 3:
                break
    assert pieces[0] == "Having"
    async for event in stream:
        usage = event.usage or usage
        pieces += [event.choices[0].delta.content or ""] if event.choices else []
    assert "".join(pieces) == "Having hello"
    (turn,) = house.close()
    assert house.text(turn.completion_ids) == "Having hello"
    assert usage is not None
    assert usage.completion_tokens == len(turn.completion_ids)


async def test_n_choices_are_n_turns_of_one_prompt_with_seeds_of_their_own(
    house: House, hello: Hello
) -> None:
    answers = iter(["hello", "Having", "Having hello"])
    house.sampler.answer = lambda prompt_ids, params: next(answers)
    reply = await house.client(house.open()).chat.completions.create(**hello(n=3))
    assert [choice.message.content for choice in reply.choices] == ["hello", "Having", "Having hello"]
    turns = house.close()
    assert [house.text(turn.completion_ids) for turn in turns] == ["hello", "Having", "Having hello"]
    assert len({turn.prompt_ids for turn in turns}) == 1
    assert len({one.params.seed for one in house.sampler.submitted}) == 3


async def test_a_stream_of_n_choices_keeps_them_apart(house: House, hello: Hello) -> None:
    answers = iter(["hello", "Having hello"])
    house.sampler.answer = lambda prompt_ids, params: next(answers)
    texts, reasons = ["", ""], [None, None]
    async for event in await house.client(house.open()).chat.completions.create(**hello(n=2, stream=True)):
        for choice in event.choices:
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert texts == ["hello", "Having hello"]
    assert reasons == ["stop", "stop"]
    assert len(house.close()) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_are_the_behaviour_logprobs_token_by_token(
    house: House, hello: Hello, stream: bool
) -> None:
    client = house.client(house.open())
    answer = await client.chat.completions.create(**hello(logprobs=True, top_logprobs=0, stream=stream))
    if stream:
        events = [event async for event in answer]
        content = [
            token
            for event in events
            if event.choices[0].logprobs
            for token in event.choices[0].logprobs.content
        ]
    else:
        content = answer.choices[0].logprobs.content
    (turn,) = house.close()
    assert [token.logprob for token in content] == list(turn.behaviour_logprobs)
    assert "".join(token.token for token in content) == "hello<|im_end|>"
    assert content[0].bytes == list(content[0].token.encode())
    assert content[0].top_logprobs == []


@pytest.mark.parametrize("stream", [False, True])
async def test_the_likeliest_tokens_stand_beside_the_sampled_one(
    house: House, hello: Hello, stream: bool
) -> None:
    client = house.client(house.open())
    answer = await client.chat.completions.create(**hello(logprobs=True, top_logprobs=2, stream=stream))
    events = [event async for event in answer] if stream else [answer]
    content = [
        token for event in events if event.choices[0].logprobs for token in event.choices[0].logprobs.content
    ]
    house.close()
    first = house.tokenizer.decode([0])
    for token in content:
        assert [(one.token, one.logprob) for one in token.top_logprobs] == [
            (token.token, token.logprob),
            (first, -9.0),
        ]


async def test_half_a_character_has_no_bytes(house: House, hello: Hello) -> None:
    halves = house.tokenizer.encode("数", add_special_tokens=False)
    assert len(halves) > 1
    house.sampler.answer = lambda prompt_ids, params: [*halves, 2]
    reply = await house.client(house.open()).chat.completions.create(**hello(logprobs=True))
    assert reply.choices[0].message.content == "数"
    assert reply.choices[0].logprobs is not None
    assert reply.choices[0].logprobs.content is not None
    assert reply.choices[0].logprobs.content[0].bytes is None


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_calls_come_in_openai_form_with_their_text_as_sampled(
    house: House, hello: Hello, stream: bool
) -> None:
    house.sampler.answer = lambda prompt_ids, params: f"Having.\n{CALL}"
    client = house.client(house.open())
    answer = await client.chat.completions.create(**hello(tools=[TOOL], tool_choice="auto", stream=stream))
    if stream:
        events = [event.choices[0] async for event in answer]
        content = "".join(event.delta.content or "" for event in events)
        calls = [call for event in events for call in event.delta.tool_calls or ()]
        reason = events[-1].finish_reason
    else:
        content, calls = answer.choices[0].message.content, answer.choices[0].message.tool_calls
        reason = answer.choices[0].finish_reason
    assert content == "Having."
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("calculator", '{"a":12,  "b":30}')
    ]
    assert reason == "tool_calls"
    (turn,) = house.close()
    assert turn.response["tool_calls"][0]["id"] == calls[0].id
    assert turn.finish_reason is FinishReason.STOP
    assert "calculator" in house.text(turn.prompt_ids)


async def test_an_agent_that_calls_a_tool_keeps_one_sequence_of_ids(house: House, hello: Hello) -> None:
    split = [*house.tokenizer.encode("H"), *house.tokenizer.encode("aving.\n" + CALL), 2]
    answers = iter([split, "42"])
    house.sampler.answer = lambda prompt_ids, params: next(answers)
    client = house.client(house.open())
    messages: list[Any] = hello()["messages"]
    first = await client.chat.completions.create(model="m", messages=messages, tools=[TOOL])  # pyright: ignore[reportArgumentType]
    message = first.choices[0].message
    assert message.tool_calls is not None
    messages += [
        message,
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "42"},
    ]
    await client.chat.completions.create(model="m", messages=messages, tools=[TOOL])  # pyright: ignore[reportArgumentType]
    one, two = house.close()
    assert one.completion_ids == tuple(split)
    assert two.prompt_ids[: len(one.prompt_ids) + len(split)] == (*one.prompt_ids, *split)
    assert house.gateway.stats.rerendered_prompts == 0


async def test_the_same_request_with_a_seed_samples_the_same_and_calls_by_new_ids(
    house: House, hello: Hello
) -> None:
    house.sampler.answer = lambda prompt_ids, params: CALL
    client = house.client(house.open())
    request = hello(tools=[TOOL], seed=1)
    first, second = [await client.chat.completions.create(**request) for _ in range(2)]
    one, other = house.sampler.submitted
    assert one.params.seed == other.params.seed
    ids = [reply.choices[0].message.tool_calls[0].id for reply in (first, second)]
    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ('<tool_call>\n{"name": "calculator", "arguments": {"a": 1,}}\n</tool_call>', 1),
        ("hello <tool_call>", 1),
        ("hello", 0),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_call_that_cannot_be_read_stays_content_and_is_counted(
    house: House, hello: Hello, text: str, counted: int, stream: bool
) -> None:
    house.sampler.answer = lambda prompt_ids, params: text
    answer = await house.client(house.open()).chat.completions.create(**hello(tools=[TOOL], stream=stream))
    if stream:
        events = [event.choices[0] async for event in answer]
        content, reason = "".join(event.delta.content or "" for event in events), events[-1].finish_reason
    else:
        content, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert content == text
    assert reason == "stop"
    assert len(house.close()) == 1
    assert house.gateway.stats.tool_parse_errors == counted


async def test_a_tool_call_cut_by_max_tokens_keeps_finish_reason_length(house: House, hello: Hello) -> None:
    house.sampler.answer = lambda prompt_ids, params: CALL
    reply = await house.client(house.open()).chat.completions.create(**hello(tools=[TOOL], max_tokens=4))
    assert reply.choices[0].finish_reason == "length"
    assert reply.choices[0].message.tool_calls is None
    (turn,) = house.close()
    assert turn.finish_reason is FinishReason.LENGTH
    assert len(turn.completion_ids) == 4
    assert house.gateway.stats.tool_parse_errors == 0


async def test_an_unknown_tool_and_two_calls_in_one_turn_are_for_the_agent_to_answer(
    house: House, hello: Hello
) -> None:
    house.sampler.answer = lambda prompt_ids, params: CALL + CALL.replace("calculator", "oracle")
    resource = house.open(sampling=SamplingParams(max_tokens=128))
    reply = await house.client(resource).chat.completions.create(**hello(tools=[TOOL]))
    calls = reply.choices[0].message.tool_calls
    assert calls is not None
    assert [call.to_dict()["function"] for call in calls] == [
        {"name": "calculator", "arguments": '{"a":12,  "b":30}'},
        {"name": "oracle", "arguments": '{"a":12,  "b":30}'},
    ]
    assert len({call.id for call in calls}) == 2


async def test_with_tool_choice_none_what_looks_like_a_call_is_content(house: House, hello: Hello) -> None:
    house.sampler.answer = lambda prompt_ids, params: CALL
    reply = await house.client(house.open()).chat.completions.create(
        **hello(tools=[TOOL], tool_choice="none")
    )
    assert reply.choices[0].message.content == CALL
    assert house.gateway.stats.tool_parse_errors == 0


async def test_stop_strings_and_token_limits_reach_the_engine(house: House, hello: Hello) -> None:
    house.sampler.answer = lambda prompt_ids, params: "Having hello"
    reply = await house.client(house.open()).chat.completions.create(**hello(stop=" hello", max_tokens=9))
    assert reply.choices[0].message.content == "Having"
    (submitted,) = house.sampler.submitted
    assert submitted.params.stop == (" hello",)
    assert submitted.params.max_tokens == 9


async def test_validation_honours_top_k_and_stays_greedy(house: House, hello: Hello) -> None:
    resource = house.open(sampling=SamplingParams(max_tokens=8, temperature=0.0), training=False)
    await house.client(resource).chat.completions.create(
        **hello(temperature=0.9, top_p=0.5, extra_body={"top_k": 7})
    )
    (submitted,) = house.sampler.submitted
    assert (submitted.params.temperature, submitted.params.top_p, submitted.params.top_k) == (0.0, 0.5, 7)
    assert house.close()[0].temperature == 0.0


async def test_the_model_in_training_is_listed(house: House) -> None:
    models = await house.client(house.open()).models.list()
    assert [model.id for model in models.data] == ["policy"]


async def test_any_rollout_id_has_an_address(house: House, hello: Hello) -> None:
    name = "数学/train.jsonl:7 %2F?#1"
    await house.client(house.open(name)).chat.completions.create(**hello())
    assert len(house.close(name)) == 1


async def test_a_call_without_http_is_captured_like_any_other(house: House, hello: Hello) -> None:
    house.open()
    house.sampler.answer = lambda prompt_ids, params: CALL
    message = await house.gateway.chat("r", "1", hello()["messages"], [TOOL])
    assert message["role"] == "assistant"
    assert message["content"] is None
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"a": 12, "b": 30}
    (turn,) = house.close()
    assert turn.response == message


async def test_prompt_length_is_that_of_the_prompt_a_call_would_have(house: House, hello: Hello) -> None:
    house.open()
    messages = hello()["messages"]
    await house.gateway.chat("r", "1", messages, [TOOL])
    (turn,) = house.close()
    assert house.gateway.prompt_length(messages, [TOOL]) == len(turn.prompt_ids)
    assert house.gateway.prompt_length(messages, None) < len(turn.prompt_ids)
