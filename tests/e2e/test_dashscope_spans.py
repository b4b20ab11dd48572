"""Spans that the real `dashscope` package makes with its own decorators: received, linked and shown."""

from __future__ import annotations

import re

import pytest

from contract.console.test_job_pages import keys_of, text_of
from fakes.console import record_job
from fakes.dashscope_project import Project, environment
from fakes.server import Server, serving
from strop.store.home import home

JOB, ROLLOUT = "ft-1", "1-train-0-r1"

AGENT = """
import httpx
from openai import AsyncOpenAI

from dashscope.finetune.reinforcement import AbstractRolloutProcessor, RolloutInput, RolloutOutput
from dashscope.finetune.reinforcement.component.data.base_data_model import AgentOutput, TaskStatus
from dashscope.finetune.reinforcement.component.observability import (
    observe_processor, observe_tool, trace_client,
)


def answer(request):
    said = {"role": "assistant", "content": "five, by the policy"}
    choice = {"index": 0, "finish_reason": "stop", "message": said}
    usage = {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}
    return httpx.Response(200, json={
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "policy",
        "choices": [choice], "usage": usage,
    })


@observe_tool(name="add")
def add(a, b):
    return a + b


class Agent(AbstractRolloutProcessor):
    @observe_processor
    async def process(self, input: RolloutInput) -> RolloutOutput:
        http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        async with AsyncOpenAI(
            base_url="http://model/v1", api_key="very-secret-key", http_client=http
        ) as client:
            trace_client(client)
            reply = await client.chat.completions.create(model="policy", messages=input.messages)
        add(2, 3)
        said = {"role": "assistant", "content": reply.choices[0].message.content}
        return RolloutOutput(
            agent_output=AgentOutput(messages=[*input.messages, said]), status=TaskStatus.SUCCESS
        )
"""

CALL = """
import asyncio, json
from opentelemetry import trace
from dashscope.finetune.reinforcement.common.model_types import FunctionType
from dashscope.finetune.reinforcement.component.func_manager import FuncManager

manager = FuncManager.create_from_env(FunctionType.ROLLOUT, "functions.agent.Agent")
asked = manager.parses(PAYLOAD)
done = asyncio.run(manager.processes(asked))
trace.get_tracer_provider().shutdown()
print(json.dumps(done.agent_output.messages[-1]["content"]))
"""

PAYLOAD = {
    "messages": [{"role": "user", "content": "2 + 3?"}],
    "model_resource": {"model_name": "policy", "base_url": "http://model/v1", "api_key": "very-secret-key"},
    "request_metadata": {"job_id": JOB, "sample_id": "train-0", "rollout_id": ROLLOUT, "attempt_id": "a1"},
}


def exporting(server: Server) -> dict[str, str]:
    """What its documents say a container must set, and what names our job."""
    return {
        "ENABLE_TRAJECTORY": "true",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{server.url}/v1/traces",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{server.key}",
        "OTEL_RESOURCE_ATTRIBUTES": f"bailian.agentic_rl.job_id={JOB}",
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    }


@pytest.mark.slow
def test_spans_of_the_real_package_are_stored_linked_to_their_rollout_and_shown(tmp_path):
    with serving(home(), supervise=False) as server:
        record_job(server.database, JOB)
        project = Project(tmp_path / "project", environment("2.0.2", tracing=True), server)
        (project.folder / "functions" / "agent.py").write_text(AGENT)
        said = project.script(f"PAYLOAD = {PAYLOAD!r}\n{CALL}", **exporting(server))
        assert said == "five, by the policy"

        found = server.get(f"/fine-tunes/{JOB}/spans", rollout_id=ROLLOUT)["spans"]
        spans = {one["name"]: one for one in found}
        assert {name: one["kind"] for name, one in spans.items()} == {
            "invoke_agentic_rl": "CHAIN",
            "invoke_rollout Agent": "ROLLOUT",
            "chat policy": "LLM",
            "execute_tool add": "TOOL",
        }
        entry, rollout = spans["invoke_agentic_rl"], spans["invoke_rollout Agent"]
        chat, tool = spans["chat policy"], spans["execute_tool add"]
        assert len({one["trace_id"] for one in found}) == 1
        assert "parent_span_id" not in entry
        assert rollout["parent_span_id"] == entry["span_id"]
        assert {chat["parent_span_id"], tool["parent_span_id"]} == {rollout["span_id"]}
        assert {(one["sample_id"], one["attempt_id"]) for one in found} == {("train-0", "a1")}
        assert chat["attributes"]["gen_ai.usage.input_tokens"] == 11
        assert "five, by the policy" in chat["attributes"]["gen_ai.output.messages"]
        assert tool["attributes"]["gen_ai.tool.call.result"] == "5"
        assert "very-secret-key" not in str(found)

        with server.client(None) as browser:
            browser.base_url = server.url
            browser.headers["origin"] = server.url
            assert browser.post("/console/sign-in", data={"key": server.key}).status_code == 303
            (key,) = keys_of(browser.get(f"/console/jobs/{JOB}/rollouts?rollout={ROLLOUT}").text)
            shown = text_of(browser.get(f"/console/jobs/{JOB}/trajectories/{key}/tracing").text)
        assert re.search(r"invoke_agentic_rl .*invoke_rollout Agent .*chat policy .*execute_tool add ", shown)
        assert "five, by the policy" in shown
