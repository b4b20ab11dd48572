"""The tracing examples of DashScope's documentation, as written but for the import root."""

from __future__ import annotations

import asyncio
import warnings

import httpx

import strop
from strop import (
    AbstractRewardProcessor,
    AbstractRolloutProcessor,
    Reward,
    RewardInput,
    RewardOutput,
    RolloutInput,
    RolloutOutput,
    TaskStatus,
)
from strop.observability import observe_llm, observe_processor, observe_tool, trace_client, trace_tool

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

content, api_key = "4", "k"


async def evaluate(content, ground_truth):
    return float(content == ground_truth)


def answer(request):
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "4"}}
    return httpx.Response(
        200, json={"id": "c-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    )


class MultiServerMCPClient:
    """In place of servers: the tools that one would offer."""

    def __init__(self, servers):
        self.servers = servers

    async def get_tools(self):
        @tool
        def add(a: int, b: int) -> int:
            """Add, by an MCP server."""
            return a + b

        return [add]


class CalcXRolloutProcessor(AbstractRolloutProcessor):
    @observe_processor  # Span 类型 = ROLLOUT
    async def process(self, input: RolloutInput) -> RolloutOutput:
        await self._async_setup()
        return await self._async_process(input)

    def _build_llm(self, input: RolloutInput, http) -> ChatOpenAI:
        llm = ChatOpenAI(
            model=input.model_resource.model_name,
            openai_api_key=api_key,
            openai_api_base=input.model_resource.base_url,
            http_async_client=http,
        )
        trace_client(llm)  # 包装后自动追踪所有 LLM 调用
        return llm

    async def _init_resources_async(self):
        client = MultiServerMCPClient({"calculator": {"url": "http://localhost:10086/sse"}})
        tools = await client.get_tools()
        trace_tool(tools)  # 必须在 get_tools() 之后调用
        return tools

    async def _async_setup(self):
        self.tools = await self._init_resources_async()

    async def _async_process(self, input):
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            said = await self._build_llm(input, http).ainvoke("2 + 2?")
        await self.tools[0].ainvoke({"a": 2, "b": 2})
        return {"agent_output": {"messages": [{"role": "assistant", "content": said.content}]}}


class DemoRewardProcessor(AbstractRewardProcessor):
    @observe_processor  # Span 类型 = REWARD
    async def process(self, input: RewardInput) -> RewardOutput:
        score = await evaluate(content, input.ground_truth)
        return RewardOutput(
            reward=Reward(reward_score=score, reward_metrics={"test1": 0.5, "test2": 0.3}),
            status=TaskStatus.SUCCESS,
        )


@observe_llm  # 标记为 LLM Span
async def call_custom_llm(*, model: str, messages: list, **kwargs):
    await asyncio.sleep(0)


@observe_tool(name="response_scorer")  # 标记为 TOOL Span
def score_response(*, messages: list) -> float:
    return 0.5


async def test_the_rollout_example_gives_the_tree_of_the_documents(seen):
    given = strop.RolloutInput(
        messages=[], model_resource={"model_name": "m", "base_url": "http://x/v1", "api_key": "k"}
    )
    await CalcXRolloutProcessor().process(given)
    root = seen.one("invoke_rollout CalcXRolloutProcessor")
    kinds = {span.name: span.attributes["gen_ai.span.kind"] for span in seen.all}
    assert kinds == {root.name: "ROLLOUT", "chat m": "LLM", "execute_tool add": "TOOL"}
    assert {span.parent.span_id for span in seen.all if span is not root} == {root.context.span_id}
    assert seen.one("execute_tool add").attributes["gen_ai.provider.name"] == "mcp"


async def test_the_reward_example_scores_in_a_reward_span(seen):
    given = strop.RewardInput(agent_output=strop.AgentOutput(messages=[]), ground_truth="4")
    await DemoRewardProcessor().process(given)
    assert seen.one("invoke_reward DemoRewardProcessor").attributes["agentic_rl.result.reward_score"] == 1.0


async def test_the_examples_of_own_functions_make_their_spans(seen):
    await call_custom_llm(model="mine", messages=[])
    score_response(messages=[])
    assert seen.names == ["chat mine", "execute_tool response_scorer"]
