import json
import warnings

import httpx
import openai
import pytest
from opentelemetry.trace import StatusCode

from strop.tracing import trace_client

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from langchain_openai import ChatOpenAI

MESSAGES = [{"role": "user", "content": "2 + 2?"}]
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "smollm2",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "four"}}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8},
}


def chunk(**delta):
    reason = delta.pop("finish_reason", None)
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {
        "id": "chatcmpl-2",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }


CHUNKS = [chunk(role="assistant", content="fo"), chunk(content="ur"), chunk(finish_reason="stop")]


def answer(request):
    asked = json.loads(request.content)
    if asked["model"] == "absent":
        return httpx.Response(404, json={"error": {"message": "no such model"}})
    if asked.get("stream"):
        body = "".join(f"data: {json.dumps(one)}\n\n" for one in CHUNKS) + "data: [DONE]\n\n"
        return httpx.Response(200, text=body, headers={"content-type": "text/event-stream"})
    return httpx.Response(200, json=ANSWER)


@pytest.fixture
def client():
    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        yield trace_client(
            openai.OpenAI(api_key="k", base_url="http://x/v1", http_client=http, max_retries=0)
        )


@pytest.fixture
async def async_client():
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        yield trace_client(
            openai.AsyncOpenAI(api_key="k", base_url="http://x/v1", http_client=http, max_retries=0)
        )


def output(span):
    return json.loads(span.attributes["gen_ai.output.messages"])


FOUR = [{"role": "assistant", "parts": [{"type": "text", "content": "four"}], "finish_reason": "stop"}]


def test_a_call_is_a_span_with_request_usage_and_answer(seen, client):
    reply = client.chat.completions.create(
        model="smollm2", messages=MESSAGES, temperature=0.5, max_tokens=9, stop="x"
    )
    assert isinstance(reply, openai.types.chat.ChatCompletion)
    span = seen.one("chat smollm2")
    expected = {
        "gen_ai.span.kind": "LLM",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "smollm2",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.stop_sequences": ("x",),
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": "smollm2",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 1,
        "gen_ai.usage.total_tokens": 8,
    }
    assert {key: span.attributes[key] for key in expected} == expected
    assert output(span) == FOUR
    assert span.status.status_code is StatusCode.UNSET


async def test_an_async_call_is_a_span(seen, async_client):
    await async_client.chat.completions.create(model="smollm2", messages=MESSAGES)
    assert output(seen.one("chat smollm2")) == FOUR


def test_a_stream_stays_a_stream_and_is_measured_to_its_end(seen, client):
    stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    assert isinstance(stream, openai.Stream)
    assert next(stream).choices[0].delta.content == "fo"
    assert seen.names == []
    assert [one.choices[0].delta.content for one in stream] == ["ur", None]
    assert output(seen.one("chat m")) == FOUR


async def test_an_async_stream_is_measured_to_its_end(seen, async_client):
    stream = await async_client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    assert isinstance(stream, openai.AsyncStream)
    texts = [one.choices[0].delta.content async for one in stream]
    assert texts == ["fo", "ur", None]
    assert output(seen.one("chat m")) == FOUR


def test_a_stream_that_is_let_go_leaves_what_came(seen, client):
    with client.chat.completions.create(model="m", messages=MESSAGES, stream=True) as stream:
        next(stream)
    del stream
    assert output(seen.one("chat m"))[0]["parts"] == [{"type": "text", "content": "fo"}]


def test_a_refusal_is_an_error_on_the_span_and_for_the_caller(seen, client):
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="absent", messages=MESSAGES)
    span = seen.one("chat absent")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "NotFoundError"


def test_raw_responses_and_parsed_answers_are_spans_as_well(seen, client):
    raw = client.chat.completions.with_raw_response.create(model="smollm2", messages=MESSAGES)
    assert raw.parse().choices[0].message.content == "four"
    client.chat.completions.parse(model="smollm2", messages=MESSAGES)
    assert [output(span)[0]["parts"] for span in seen.all] == [FOUR[0]["parts"]] * 2


def test_tracing_twice_makes_one_span_a_call(seen, client):
    trace_client(client)
    trace_client(client.chat.completions)
    client.chat.completions.create(model="smollm2", messages=MESSAGES)
    assert seen.names == ["chat smollm2"]


def test_tool_calls_are_parts_of_the_messages_and_their_secrets_masked(seen, client):
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "add", "arguments": '{"a":1,"api_key":"sk-123456789"}'},
    }
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]
    client.chat.completions.create(model="smollm2", messages=messages)
    _, said, told = json.loads(seen.all[0].attributes["gen_ai.input.messages"])
    assert said["parts"] == [
        {"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1, "api_key": "sk-1****6789"}}
    ]
    assert told["parts"] == [{"type": "tool_call_response", "id": "c1", "response": "3"}]


def test_of_a_long_conversation_the_newest_messages_are_kept(seen, client, monkeypatch):
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "200")
    messages = [{"role": "user", "content": f"message {n}"} for n in range(50)]
    client.chat.completions.create(model="smollm2", messages=messages)
    kept = json.loads(seen.all[0].attributes["gen_ai.input.messages"])
    assert [one["parts"][0]["content"] for one in kept] == ["message 47", "message 48", "message 49"]


def test_langchains_chat_model_is_traced_plain_and_streaming(seen):
    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        llm = trace_client(ChatOpenAI(model="smollm2", api_key="k", base_url="http://x/v1", http_client=http))
        assert llm.invoke("2 + 2?").content == "four"
        assert "".join(part.content for part in llm.stream("2 + 2?")) == "four"
    assert seen.names == ["chat smollm2"] * 2
    assert [output(span)[0]["parts"] for span in seen.all] == [FOUR[0]["parts"]] * 2


async def test_langchains_chat_model_is_traced_asynchronously(seen):
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        llm = trace_client(
            ChatOpenAI(model="smollm2", api_key="k", base_url="http://x/v1", http_async_client=http)
        )
        assert (await llm.ainvoke("2 + 2?")).content == "four"
    assert seen.names == ["chat smollm2"]


class Generation:
    """The form of DashScope's class: one classmethod, answers with `output`."""

    @classmethod
    def call(cls, model, prompt=None, history=None, api_key=None, messages=None, stream=False, **kwargs):
        choice = {"message": {"role": "assistant", "content": "four"}, "finish_reason": "stop"}
        reply = {
            "request_id": "r-9",
            "output": {"choices": [choice]},
            "usage": {"input_tokens": 3, "output_tokens": 1},
        }
        return iter([reply, reply]) if stream else reply


def test_dashscopes_generation_class_is_traced_once_plain_and_streaming(seen):
    class Own(Generation):
        pass

    trace_client(trace_client(Own))
    Own.call("qwen", messages=MESSAGES, temperature=0.1)
    assert len(list(Own.call(model="qwen", prompt="2 + 2?", stream=True))) == 2
    assert seen.names == ["chat qwen", "chat qwen"]
    for span in seen.all:
        assert output(span) == FOUR
        assert span.attributes["gen_ai.provider.name"] == "dashscope"
        assert span.attributes["gen_ai.response.id"] == "r-9"
        assert span.attributes["gen_ai.usage.total_tokens"] == 4
        assert "2 + 2?" in span.attributes["gen_ai.input.messages"]


def test_what_is_no_client_is_left_alone_with_one_warning(caplog):
    class Strange:
        pass

    one = Strange()
    assert trace_client(one) is one
    trace_client(Strange())
    assert caplog.text.count("cannot trace a Strange") == 1
