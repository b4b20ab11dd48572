"""What the official client gets from a served model, by a real engine and by a scripted one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from fakes.sampler import FakeSampler, logprob_of
from fakes.serving import Shop, served_model
from fakes.tokenizer import tiny_tokenizer
from strop.inference.local import Engine
from strop.inference.serving.models import SamplingDefaults
from strop.schema.sampling import SamplingParams

Hello = Callable[..., dict[str, Any]]


async def test_the_answer_is_the_engines_and_usage_counts_its_tokens(
    shop: Shop, engine: Engine, hello: Hello
) -> None:
    tokenizer = tiny_tokenizer()
    ids = tokenizer.encode("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    [expected] = engine.generate([ids], SamplingParams(max_tokens=12, temperature=0))
    answer = await shop.client().chat.completions.create(**hello(temperature=0, max_tokens=12))
    assert answer.choices[0].message.content == expected.text
    assert answer.choices[0].finish_reason == expected.finish_reason.value
    assert answer.model == "tiny"
    assert answer.system_fingerprint == "weights-1"
    usage = answer.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(ids), len(expected.token_ids))


async def test_a_stream_says_what_the_whole_answer_says(shop: Shop, hello: Hello) -> None:
    client, asked = shop.client(), hello(seed=3, max_tokens=20, n=2, logprobs=True)
    whole = await client.chat.completions.create(**asked)
    texts, logprobs, finishes, usage = ["", ""], [0.0, 0.0], [None, None], None
    stream = await client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            finishes[choice.index] = choice.finish_reason or finishes[choice.index]
            if choice.logprobs is not None:
                logprobs[choice.index] += sum(one.logprob for one in choice.logprobs.content or ())
    assert texts == [choice.message.content for choice in whole.choices]
    assert finishes == [choice.finish_reason for choice in whole.choices]
    assert usage == whole.usage
    assert logprobs == pytest.approx(
        [sum(one.logprob for one in choice.logprobs.content) for choice in whole.choices]
    )


async def test_a_seed_repeats_an_answer_its_choices_differ_and_without_one_answers_differ(
    shop: Shop, hello: Hello
) -> None:
    client = shop.client()

    async def texts(**more: Any) -> list[str | None]:
        answer = await client.chat.completions.create(**hello(max_tokens=16, n=2, **more))
        return [choice.message.content for choice in answer.choices]

    first, again, free, other = await texts(seed=1), await texts(seed=1), await texts(), await texts()
    assert first == again
    assert len({*first, *free, *other}) == 6


async def test_a_stop_string_ends_the_answer_before_itself(
    scripted: Shop, script: FakeSampler, hello: Hello
) -> None:
    script.answer = lambda ids, params: "the answer is 42. Having said so"
    answer = await scripted.client().chat.completions.create(**hello(stop=[" Having"]))
    assert answer.choices[0].message.content == "the answer is 42."
    assert answer.choices[0].finish_reason == "stop"
    assert script.submitted[0].params.stop == (" Having",)


async def test_a_tool_call_comes_as_one_with_and_without_a_stream(
    scripted: Shop, script: FakeSampler, hello: Hello
) -> None:
    script.answer = lambda ids, params: (
        'I count.\n<tool_call>\n{"name": "calculator", "arguments": {"a": 1}}\n</tool_call>'
    )
    tools = [{"type": "function", "function": {"name": "calculator", "parameters": {}}}]
    client = scripted.client()
    answer = await client.chat.completions.create(**hello(tools=tools))
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I count."
    [call] = choice.message.tool_calls or ()
    assert (call.function.name, call.function.arguments) == ("calculator", '{"a": 1}')
    said, names = "", []
    async for chunk in await client.chat.completions.create(**hello(tools=tools, stream=True)):
        said += chunk.choices[0].delta.content or ""
        names += [one.function.name for one in chunk.choices[0].delta.tool_calls or ()]
    assert (said, names) == ("I count.", ["calculator"])


async def test_logprobs_are_those_of_the_sampled_tokens(
    scripted: Shop, script: FakeSampler, hello: Hello
) -> None:
    answer = await scripted.client().chat.completions.create(**hello(logprobs=True))
    ids = [*script.tokenizer.encode("hello"), script.tokenizer.eos_token_id]
    content = answer.choices[0].logprobs.content
    assert [one.logprob for one in content] == pytest.approx([logprob_of(one) for one in ids])


async def test_what_a_request_leaves_out_is_the_models_own_setting(script: FakeSampler, hello: Hello) -> None:
    defaults = SamplingDefaults(temperature=0.6, top_p=0.95, top_k=20)
    shop = Shop(served_model(script, script.tokenizer, defaults=defaults))
    await shop.open()
    try:
        client = shop.client()
        await client.chat.completions.create(**hello())
        await client.chat.completions.create(
            **hello(temperature=0, top_p=0.5, max_tokens=7, extra_body={"top_k": -1})
        )
    finally:
        await shop.close()
    own, asked = (one.params for one in script.submitted)
    assert (own.temperature, own.top_p, own.top_k) == (0.6, 0.95, 20)
    assert own.max_tokens == 300 - len(script.submitted[0].prompt_ids)
    assert (asked.temperature, asked.top_p, asked.top_k, asked.max_tokens) == (0, 0.5, 0, 7)


def test_a_generation_config_that_does_not_sample_leaves_openais_defaults() -> None:
    from transformers import GenerationConfig

    greedy = GenerationConfig(do_sample=False)
    assert SamplingDefaults.of(greedy) == SamplingDefaults(temperature=1.0, top_p=1.0, top_k=0)
    sampled = SamplingDefaults.of(GenerationConfig(do_sample=True, temperature=0.7, top_k=20, top_p=0.8))
    assert sampled == SamplingDefaults(temperature=0.7, top_p=0.8, top_k=20)


async def test_the_models_list_names_the_one_model_and_its_length(shop: Shop) -> None:
    client = shop.client()
    models = (await client.models.list()).data
    assert [(model.id, model.owned_by) for model in models] == [("tiny", "strop")]
    found = await client.models.retrieve("tiny")
    assert (found.id, found.model_extra) == ("tiny", {"max_model_len": 200})
    with pytest.raises(openai.NotFoundError, match="served: 'tiny'"):
        await client.models.retrieve("other")


async def test_metrics_count_calls_by_outcome_and_their_tokens(shop: Shop, hello: Hello) -> None:
    client = shop.client()
    usage = (await client.chat.completions.create(**hello(max_tokens=5))).usage
    assert usage is not None
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(**{**hello(), "model": "other"})
    async with httpx.AsyncClient() as plain:
        lines = (await plain.get(f"{shop.address}/metrics")).text.splitlines()
    assert 'strop_calls_total{outcome="answered"} 1.0' in lines
    assert 'strop_calls_total{outcome="refused"} 1.0' in lines
    assert f"strop_prompt_tokens_total {float(usage.prompt_tokens)}" in lines
    assert f"strop_completion_tokens_total {float(usage.completion_tokens)}" in lines
    assert "strop_answer_seconds_count 1.0" in lines
