"""Agents that trace nothing leave spans all the same: one a call, below the root of the attempt's trace."""

from __future__ import annotations

import json

from fakes.house import SAMPLING
from strop.errors import StoreError
from strop.schema.span import RESPONSE_ID, SpanKind
from strop.tracing.ids import root_span_id_of, trace_id_of


async def test_every_captured_call_is_a_span_below_the_root(house, hello):
    kept = []
    house.gateway.tell_spans("ft-1", kept.extend)
    house.sampler.answer = lambda prompt_ids, params: "four"
    client = house.client(house.open())
    reply = await client.chat.completions.create(**hello("2 + 2?", temperature=1.0))
    await client.chat.completions.create(**hello("and more?", stream=False))
    assert kept == []
    house.close()
    root, first, second = kept
    assert (root.name, root.kind, root.span_id) == (
        "invoke_agentic_rl",
        SpanKind.CHAIN,
        root_span_id_of("ft-1", "r", "1"),
    )
    assert {span.trace_id for span in kept} == {trace_id_of("ft-1", "r", "1")}
    assert (first.parent_span_id, second.parent_span_id) == (root.span_id, root.span_id)
    assert first.span_id != second.span_id
    assert (first.name, first.kind, first.rollout_id, first.attempt_id) == (
        "chat policy",
        SpanKind.LLM,
        "r",
        "1",
    )
    assert first.attributes[RESPONSE_ID] == reply.id
    assert first.attributes["gen_ai.usage.output_tokens"] == reply.usage.completion_tokens
    assert json.loads(first.attributes["gen_ai.output.messages"])[0]["parts"] == [
        {"type": "text", "content": "four"}
    ]
    assert "2 + 2?" in first.attributes["gen_ai.input.messages"]
    assert root.start_ns <= first.start_ns
    assert first.start_ns + first.duration_ns <= root.start_ns + root.duration_ns


async def test_a_stream_is_a_span_too(house, hello):
    kept = []
    house.gateway.tell_spans("ft-1", kept.extend)
    client = house.client(house.open())
    async for _ in await client.chat.completions.create(**hello(stream=True)):
        pass
    house.close()
    assert [span.name for span in kept] == ["invoke_agentic_rl", "chat policy"]


async def test_a_rollout_without_a_function_has_its_spans(house):
    kept = []
    house.gateway.tell_spans("ft-1", kept.extend)
    house.open()
    await house.gateway.chat("r", "1", [{"role": "user", "content": "hello"}], None)
    house.close()
    assert [span.name for span in kept] == ["invoke_agentic_rl", "chat policy"]


async def test_the_switch_turns_them_off(house, monkeypatch):
    monkeypatch.setenv("ENABLE_TRAJECTORY", "false")
    kept = []
    house.gateway.tell_spans("ft-1", kept.extend)
    house.open()
    await house.gateway.chat("r", "1", [{"role": "user", "content": "hello"}], None)
    house.close()
    assert kept == []


async def test_a_store_that_refuses_costs_the_spans_and_not_the_rollout(house, caplog):
    def refuse(spans):
        raise StoreError("the disk is full")

    house.gateway.tell_spans("ft-1", refuse)
    for number in range(2):
        house.gateway.open(f"r{number}", "1", sampling=SAMPLING, training=True)
        await house.gateway.chat(f"r{number}", "1", [{"role": "user", "content": "hello"}], None)
        assert len(house.gateway.close(f"r{number}", "1")) == 1
    assert caplog.text.count("the disk is full") == 1
