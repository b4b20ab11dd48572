"""Question -> trajectory: a LangGraph agent whose calculator is an MCP server over SSE.

What the model gets wrong in a call (arguments that are no JSON, a tool that is not there, a call that its
token limit cut) goes back to it as the tool's answer: the rollout lives, and the model can learn from it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    convert_to_openai_messages,
)
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from strop import AbstractRolloutProcessor, AgentOutput, RolloutInput, RolloutOutput
from strop.observability import observe_processor, trace_client, trace_tool

SERVER = Path(__file__).parents[1] / "calculator_server.py"
MAX_TURNS = 4

SYSTEM = "You solve problems with the calculator. End with ### ANSWER: and the result and ###."


def solved(expression: str, result: str) -> list[BaseMessage]:
    """A whole exchange as the model should have it."""
    call = {"name": "calculate", "args": {"expression": expression}, "id": f"call_example_{result}"}
    return [
        HumanMessage(f"What is {expression}?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage(result, tool_call_id=call["id"]),
        AIMessage(f"### ANSWER: {result} ###"),
    ]


# Without examples a small model almost never finds the form, and a reward that is always 0 teaches nothing.
EXAMPLES = [*solved("35 + 48", "83"), *solved("12 * 9", "108")]


class CalcXRolloutProcessor(AbstractRolloutProcessor):
    """Calls the model until it answers without a tool."""

    async def setup(self) -> None:
        url = os.environ.get("CALCULATOR_MCP_URL")
        if url is None:
            self.server, url = start_calculator()
        client = MultiServerMCPClient({"calculator": {"transport": "sse", "url": url, "timeout": 60}})
        self.tools = await client.get_tools()
        trace_tool(self.tools)  # after get_tools()
        # For all rollouts: making one reads all certificates, and ChatOpenAI would make both for each.
        self.http = httpx.AsyncClient(timeout=None)
        self.unused = httpx.Client()

    @observe_processor
    async def process(self, input: RolloutInput) -> RolloutOutput:
        asked = [SystemMessage(SYSTEM), *EXAMPLES, *convert_to_messages(input.messages)]
        llm = ChatOpenAI(
            model=input.model_resource.model_name,
            base_url=input.model_resource.base_url,
            api_key=input.model_resource.api_key,
            http_async_client=self.http,
            http_client=self.unused,
        )
        trace_client(llm)
        state = await build_graph(llm, self.tools).ainvoke({"messages": asked})
        results = [message for message in state["messages"][len(asked) :] if isinstance(message, ToolMessage)]
        return RolloutOutput(
            agent_output=AgentOutput(
                messages=convert_to_openai_messages(state["messages"]),
                rollout_extra=input.rollout_extra,
                rollout_metrics={
                    "tool_calls": len(results),
                    "tool_errors": sum(message.status == "error" for message in results),
                },
            )
        )


def build_graph(llm: ChatOpenAI, tools: list[BaseTool]) -> Any:
    """model -> tools -> model -> ..., until there is no call or `MAX_TURNS` are over."""
    model = llm.bind_tools(tools)

    async def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", call_model)
    graph.add_node("tools", ToolNode(tools))
    graph.add_node("refuse", refuse)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", next_nodes, ["tools", "refuse", END])
    graph.add_edge("tools", "model")
    graph.add_edge("refuse", "model")
    return graph.compile()


def next_nodes(state: MessagesState) -> list[str]:
    """Calls that can be read go to the tools, those that cannot are refused; one turn may have both."""
    said = state["messages"][-1]
    assert isinstance(said, AIMessage)
    since = state["messages"][len(EXAMPLES) + 1 :]
    if sum(isinstance(message, AIMessage) for message in since) >= MAX_TURNS:
        return [END]
    nodes = ["tools"] * bool(said.tool_calls) + ["refuse"] * bool(said.invalid_tool_calls)
    return nodes or [END]


def refuse(state: MessagesState) -> dict[str, Any]:
    """Answer calls whose arguments are no JSON: LangChain keeps them apart, and ToolNode passes them by."""
    said = state["messages"][-1]
    assert isinstance(said, AIMessage)
    return {
        "messages": [
            ToolMessage(
                "error: the arguments are no JSON object",
                tool_call_id=call["id"] or "",
                name=call["name"],
                status="error",
            )
            for call in said.invalid_tool_calls
        ]
    }


def start_calculator() -> tuple[subprocess.Popen[bytes], str]:
    """The MCP server as a process of its own, and its URL. It ends when its stdin is closed: with us."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.fileno()
        process = subprocess.Popen(
            [sys.executable, str(SERVER), "--fd", str(number)], stdin=subprocess.PIPE, pass_fds=[number]
        )
        return process, f"http://127.0.0.1:{listener.getsockname()[1]}/sse"
