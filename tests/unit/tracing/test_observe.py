import asyncio
import json

import pytest
from opentelemetry.trace import SpanKind, StatusCode

import strop
from strop.schema.span import JOB_ID, ROLLOUT_ID
from strop.tracing import observe_llm, observe_processor, observe_tool, tracing

IDS = {"job_id": "ft-1", "sample_id": "row-7", "rollout_id": "s1-0-r0", "attempt_id": "a2"}


def rollout_input():
    return strop.RolloutInput(
        messages=[{"role": "user", "content": "2 + 2?"}],
        model_resource={"model_name": "m", "base_url": "http://x", "api_key": "sk-very-secret-key"},
        request_metadata=IDS,
    )


class Agent(strop.AbstractRolloutProcessor):
    @observe_processor
    async def process(self, input):
        await asyncio.sleep(0)
        double(n=2)
        return strop.RolloutOutput(agent_output=strop.AgentOutput(messages=input.messages))


class Score(strop.AbstractRewardProcessor):
    @observe_processor
    def process(self, input):
        return strop.RewardOutput(reward=strop.Reward(reward_score=0.75))


@observe_tool(name="doubler", provider="local")
def double(*, n):
    return 2 * n


def reward_input():
    return strop.RewardInput(agent_output=strop.AgentOutput(messages=[]), request_metadata=IDS)


async def test_a_rollout_is_a_span_with_its_tools_below_it(seen):
    await Agent().process(rollout_input())
    root, tool = seen.one("invoke_rollout Agent"), seen.one("execute_tool doubler")
    assert root.attributes["gen_ai.span.kind"] == "ROLLOUT"
    assert root.attributes["agentic_rl.result.status"] == "success"
    assert root.attributes["request_id"] == "s1-0-r0"
    assert root.status.status_code is StatusCode.OK
    assert (tool.parent.span_id, tool.context.trace_id) == (root.context.span_id, root.context.trace_id)
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"n": 2}
    assert tool.attributes["gen_ai.tool.call.result"] == "4"
    assert tool.attributes["gen_ai.provider.name"] == "local"


async def test_the_ids_of_the_rollout_travel_to_every_span_below(seen):
    await Agent().process(rollout_input())
    for span in seen.all:
        assert span.attributes[JOB_ID] == "ft-1"
        assert span.attributes[ROLLOUT_ID] == "s1-0-r0"
        assert span.attributes["bailian.agentic_rl.sample_id"] == "row-7"
        assert span.attributes["bailian.agentic_rl.attempt_id"] == "a2"


async def test_a_span_holds_no_key_of_the_policy(seen):
    await Agent().process(rollout_input())
    text = seen.one("invoke_rollout Agent").attributes["input.value"]
    assert "2 + 2?" in text
    assert "very-secret" not in text


def test_a_plain_reward_is_a_span_with_its_score(seen):
    Score().process(reward_input())
    span = seen.one("invoke_reward Score")
    assert span.attributes["gen_ai.span.kind"] == "REWARD"
    assert span.attributes["agentic_rl.result.reward_score"] == 0.75
    assert json.loads(span.attributes["output.value"])["reward"]["reward_score"] == 0.75


def test_a_processor_s_span_is_internal_or_of_the_kind_that_is_asked_for(seen):
    class Called(strop.AbstractRewardProcessor):
        @observe_processor(otel_span_kind=SpanKind.SERVER)
        def process(self, input):
            return strop.RewardOutput(reward=strop.Reward(reward_score=0.75))

    Score().process(reward_input())
    Called().process(reward_input())
    assert seen.one("invoke_reward Score").kind is SpanKind.INTERNAL
    assert seen.one("invoke_reward Called").kind is SpanKind.SERVER
    assert seen.one("invoke_reward Called").attributes["operation.name"] == "invoke_reward"


def test_a_kind_that_is_none_of_opentelemetry_s_is_said_to_have_no_effect(seen, caplog):
    tracing.warn_once.cache_clear()

    class Called(strop.AbstractRewardProcessor):
        @observe_processor(otel_span_kind="SERVER")
        def process(self, input):
            return strop.RewardOutput(reward=strop.Reward(reward_score=0.75))

    Called().process(reward_input())
    assert seen.one("invoke_reward Called").kind is SpanKind.INTERNAL
    (record,) = caplog.records
    assert record.getMessage().startswith("otel_span_kind='SERVER' has no effect")


def test_a_handler_of_another_package_is_said_to_have_no_effect(seen, caplog):
    tracing.warn_once.cache_clear()

    @observe_tool(handler=object())
    def tool():
        return 1

    @observe_llm(handler=object())
    def model(*, messages):
        return None

    assert tool() == 1
    model(messages=[])
    assert [record.getMessage().partition(" has")[0] for record in caplog.records] == [
        "observe_tool: handler=",
        "observe_llm: handler=",
    ]


def test_a_group_reward_has_a_kind_of_its_own(seen):
    class Rank(strop.AbstractGroupRewardProcessor):
        @observe_processor(capture_io_attributes=False)
        def process(self, input):
            return {"reward": {"rewards": []}}

    Rank().process(strop.GroupRewardInput(agent_outputs=[]))
    span = seen.one("invoke_reward Rank")
    assert span.attributes["gen_ai.span.kind"] == "GROUP_REWARD"
    assert "input.value" not in span.attributes


async def test_a_class_is_decorated_as_a_whole(seen):
    @observe_processor
    class Whole(strop.AbstractRolloutProcessor):
        async def process(self, input):
            return strop.RolloutOutput()

    await Whole().process(rollout_input())
    assert seen.names == ["invoke_rollout Whole"]


async def test_a_plain_process_that_gives_an_awaitable_is_one_span_to_its_end(seen):
    async def answer(input):
        await asyncio.sleep(0)
        double(n=3)
        return strop.RewardOutput(reward=strop.Reward(reward_score=0.5))

    class Later(strop.AbstractRewardProcessor):
        @observe_processor
        def process(self, input):
            double(n=2)
            return answer(input)

    given = Later().process(reward_input())
    assert seen.names == ["execute_tool doubler"]
    await asyncio.create_task(given)
    span = seen.one("invoke_reward Later")
    assert span.attributes["agentic_rl.result.reward_score"] == 0.5
    tools = [one for one in seen.all if one is not span]
    assert [one.attributes["gen_ai.tool.call.result"] for one in tools] == ["4", "6"]
    for tool in tools:
        assert tool.parent.span_id == span.context.span_id
        assert tool.attributes[ROLLOUT_ID] == "s1-0-r0"


async def test_an_awaitable_that_fails_ends_that_one_span_with_the_error(seen):
    async def fails():
        raise LookupError("no such sample")

    class Later(strop.AbstractRewardProcessor):
        @observe_processor
        def process(self, input):
            return fails()

    with pytest.raises(LookupError, match="no such sample"):
        await Later().process(reward_input())
    assert seen.one("invoke_reward Later").status.description == "LookupError: no such sample"


async def test_an_exception_ends_the_span_once_and_goes_on_as_it_is(seen):
    class Broken(strop.AbstractRolloutProcessor):
        @observe_processor
        async def process(self, input):
            raise LookupError("no such sample")

    with pytest.raises(LookupError, match="no such sample"):
        await Broken().process(rollout_input())
    span = seen.one("invoke_rollout Broken")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "LookupError: no such sample"
    assert [event.name for event in span.events] == ["exception"]


def test_what_is_no_processor_runs_without_a_span(seen):
    class Other:
        @observe_processor
        def process(self, input):
            return input

    assert Other().process("x") == "x"
    assert seen.names == []


async def test_an_async_tool_keeps_its_name_signature_and_answer(seen):
    @observe_tool
    async def lookup(word, *, times=1):
        """Find it."""
        await asyncio.sleep(0)
        return {"word": word * times, "password": "longpassword"}

    assert await lookup("ab", times=2) == {"word": "abab", "password": "longpassword"}
    assert (lookup.__name__, lookup.__doc__) == ("lookup", "Find it.")
    span = seen.one("execute_tool lookup")
    assert json.loads(span.attributes["gen_ai.tool.call.arguments"]) == {"word": "ab", "times": 2}
    assert json.loads(span.attributes["gen_ai.tool.call.result"])["password"] == "long****word"


async def test_an_own_model_call_is_an_llm_span(seen):
    @observe_llm
    async def call(*, model, messages, **kwargs):
        return {
            "id": "r-1",
            "model": "m-2",
            "choices": [{"message": {"role": "assistant", "content": "four"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 1},
        }

    await call(model="m", messages=[{"role": "user", "content": "2 + 2?"}], temperature=0.5)
    attributes = seen.one("chat m").attributes
    assert attributes["gen_ai.span.kind"] == "LLM"
    assert attributes["gen_ai.request.temperature"] == 0.5
    assert attributes["gen_ai.response.id"] == "r-1"
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["gen_ai.usage.total_tokens"] == 8
    assert json.loads(attributes["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "2 + 2?"}]}
    ]
    assert json.loads(attributes["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "four"}], "finish_reason": "stop"}
    ]


def test_a_result_of_any_form_is_mapped(seen):
    @observe_llm(
        messages_arg="chat", result_mapper=lambda text: {"choices": [{"message": {"content": text}}]}
    )
    def call(chat, model="own"):
        return "five"

    assert call([{"role": "user", "content": "?"}]) == "five"
    assert "five" in seen.one("chat own").attributes["gen_ai.output.messages"]


def test_an_own_stream_is_measured_to_its_end(seen):
    @observe_llm
    def call(*, model, messages):
        for word in ("fo", "ur"):
            yield {"choices": [{"index": 0, "delta": {"content": word}}]}

    stream = call(model="m", messages=[])
    assert seen.names == []
    assert len(list(stream)) == 2
    assert '"content":"four"' in seen.one("chat m").attributes["gen_ai.output.messages"]


def test_a_function_that_takes_no_messages_is_refused_when_it_is_marked():
    with pytest.raises(TypeError, match="neither 'messages' nor 'prompt'"):

        @observe_llm
        def call(question):
            return question


def test_a_switch_turns_everything_off(seen, monkeypatch):
    monkeypatch.setenv("ENABLE_TRAJECTORY", "false")
    assert double(n=4) == 8
    Score().process(reward_input())
    assert seen.names == []


def test_content_is_left_off_where_it_is_not_wanted(seen, monkeypatch):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "NO_CONTENT")
    double(n=4)
    Score().process(reward_input())
    kept = {key for span in seen.all for key in span.attributes}
    assert kept.isdisjoint(
        {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "input.value", "output.value"}
    )
    assert seen.one("invoke_reward Score").attributes["agentic_rl.result.reward_score"] == 0.75


def test_content_is_cut_at_the_limit(seen, monkeypatch):
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "40")
    observe_tool(lambda text: text * 2)("x" * 30)
    text = seen.all[0].attributes["gen_ai.tool.call.result"]
    assert (len(text), text[-14:]) == (40, "...[truncated]")


class Unspeakable:
    """Raises whatever is asked of it."""

    def __str__(self):
        raise RuntimeError("no text")

    def model_dump(self):
        raise RuntimeError("no dump")


def test_an_object_that_cannot_be_written_does_not_fail_the_work(seen):
    given = Unspeakable()
    assert observe_tool(lambda thing: thing)(given) is given
    assert seen.all[0].attributes["gen_ai.tool.call.result"] == '"<Unspeakable>"'


def test_after_five_failures_in_a_row_nothing_is_traced_for_a_while(seen, monkeypatch):
    from strop.tracing import recording

    def broken():
        raise RuntimeError("the exporter is broken")

    monkeypatch.setattr(recording, "tracer", broken)
    for _ in range(5):
        assert double(n=1) == 2
    assert not recording.breaker.allows()


def test_nothing_is_traced_and_nothing_loaded_without_an_address():
    import subprocess
    import sys

    code = (
        "import sys\n"
        "from strop.tracing import observe_tool, trace_client\n"
        "assert observe_tool(lambda n: n + 1)(1) == 2\n"
        "print(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
