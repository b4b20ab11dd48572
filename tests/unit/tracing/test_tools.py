import json
import warnings

import pytest
from opentelemetry.trace import StatusCode

from strop.tracing import trace_tool

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from langchain_core.messages import AIMessage
    from langchain_core.tools import StructuredTool, tool
    from langgraph.prebuilt import ToolNode


@pytest.fixture
def add():
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        if b == 13:
            raise ValueError("not this one")
        return a + b

    return add


def arguments(span):
    return json.loads(span.attributes["gen_ai.tool.call.arguments"])


def test_a_langchain_tool_is_a_span_a_call(seen, add):
    assert trace_tool(add) is add
    assert add.invoke({"a": 1, "b": 2}) == 3
    span = seen.one("execute_tool add")
    assert span.attributes["gen_ai.span.kind"] == "TOOL"
    assert span.attributes["gen_ai.tool.name"] == "add"
    assert arguments(span) == {"a": 1, "b": 2}
    assert span.attributes["gen_ai.tool.call.result"] == "3"
    assert span.status.status_code is StatusCode.OK


async def test_a_call_through_all_of_a_tools_names_is_one_span(seen, add):
    trace_tool(add)
    assert await add.ainvoke({"a": 1, "b": 2}) == 3
    assert add.run({"a": 3, "b": 4}) == 7
    assert seen.names == ["execute_tool add"] * 2


def test_a_tool_call_of_the_model_shows_its_arguments_and_its_content(seen, add):
    trace_tool(add)
    add.invoke({"type": "tool_call", "id": "c1", "name": "add", "args": {"a": 5, "b": 6}})
    span = seen.one("execute_tool add")
    assert arguments(span) == {"a": 5, "b": 6}
    assert span.attributes["gen_ai.tool.call.result"] == "11"


def test_a_tool_that_raises_ends_its_span_and_raises(seen, add):
    trace_tool(add)
    with pytest.raises(ValueError, match="not this one"):
        add.invoke({"a": 1, "b": 13})
    assert seen.one("execute_tool add").status.status_code is StatusCode.ERROR


@pytest.mark.parametrize(
    "held", [lambda t: [t], lambda t: (t,), lambda t: {"add": t}, lambda t: [{"x": (t,)}]]
)
def test_lists_tuples_and_dicts_of_tools_are_gone_through(seen, add, held):
    tools = held(add)
    assert trace_tool(trace_tool(tools)) is tools
    add.invoke({"a": 1, "b": 2})
    assert seen.names == ["execute_tool add"]


def test_a_langgraph_tool_node_is_opened_up(seen, add):
    from langgraph.graph import START, MessagesState, StateGraph

    node = trace_tool(ToolNode([add]))
    graph = StateGraph(MessagesState).add_node("tools", node).add_edge(START, "tools").compile()
    call = {"name": "add", "args": {"a": 2, "b": 2}, "id": "c1", "type": "tool_call"}
    told = graph.invoke({"messages": [AIMessage(content="", tool_calls=[call])]})
    assert told["messages"][-1].content == "4"
    assert arguments(seen.one("execute_tool add")) == {"a": 2, "b": 2}


async def test_a_tool_of_an_mcp_server_says_so(seen):
    async def call(a: int) -> int:
        return a

    call.__module__ = "langchain_mcp_adapters.tools"
    of_adapter = StructuredTool.from_function(coroutine=call, name="calc", description="Calculate.")
    await trace_tool([of_adapter])[0].ainvoke({"a": 1})
    assert seen.one("execute_tool calc").attributes["gen_ai.provider.name"] == "mcp"


async def test_a_provider_that_is_given_goes_before_what_is_found_out(seen):
    class Own:
        name = "own"
        description = "an MCP tool"

        def invoke(self, input):
            return input

    trace_tool(Own(), provider="mine").invoke("x")
    assert seen.one("execute_tool own").attributes["gen_ai.provider.name"] == "mine"


async def test_a_session_of_an_mcp_client_is_traced(seen):
    class Session:
        async def call_tool(self, name, arguments=None):
            return f"{name} {arguments}"

    session = trace_tool(Session())
    assert await session.call_tool("add", {"a": 1}) == "add {'a': 1}"
    span = seen.one("execute_tool add")
    assert arguments(span) == {"a": 1}
    assert span.attributes["gen_ai.provider.name"] == "mcp"


def test_what_is_no_tool_is_left_alone_with_one_warning(caplog):
    trace_tool(3.5)
    trace_tool(4.5)
    assert caplog.text.count("cannot trace a float") == 1
