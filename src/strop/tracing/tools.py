"""Tools of an agent framework -> the same tools, whose every call makes a span.

LangChain's BaseTool, lists, tuples and dicts of them, LangGraph's ToolNode, tools of MCP servers and an MCP
session itself. A tool that calls itself by another of its names (ainvoke -> arun -> run) makes one span a
call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from strop.schema.span import SpanKind
from strop.tracing.observe import tool_call, tool_result
from strop.tracing.recording import Recording, begin, current
from strop.tracing.tracing import warn_once

Traced = TypeVar("Traced")

_MARK = "_strop_traced"
_METHODS = ("invoke", "ainvoke", "run", "arun")

_inside: ContextVar[frozenset[int]] = ContextVar("strop_tools_inside", default=frozenset())
"""Tools whose call is under way here, by id."""


def trace_tool(tools: Traced, *, provider: str | None = None) -> Traced:
    """Make a span of every call of these tools. Calling it again changes nothing.

    `provider` is written into the spans; tools of MCP servers have "mcp" by themselves. Call it after the
    tools were fetched: what runs in another process cannot be seen here. What is no tool is left alone, with
    one warning.

    Returns:
        The same object.
    """
    _trace(tools, provider)
    return tools


def _trace(tools: Any, provider: str | None) -> None:
    if isinstance(tools, Mapping):
        members = list(cast("Mapping[Any, Any]", tools).values())
    elif isinstance(tools, list | tuple | set):
        members = list(cast("Sequence[Any]", tools))
    elif isinstance(getattr(tools, "tools_by_name", None), Mapping):
        members = list(cast("Mapping[str, Any]", tools.tools_by_name).values())
    elif isinstance(getattr(tools, "name", None), str) and any(
        callable(getattr(tools, name, None)) for name in ("invoke", "ainvoke")
    ):
        _wrap_tool(tools, provider)
        return
    elif inspect.iscoroutinefunction(getattr(tools, "call_tool", None)):
        _wrap_session(tools, provider)
        return
    else:
        warn_once(
            f"trace_tool: cannot trace a {type(tools).__name__}; mark your own function with observe_tool"
        )
        return
    for member in members:
        _trace(member, provider)


def _wrap_tool(tool: Any, provider: str | None) -> None:
    if getattr(tool, _MARK, False):
        return
    provider = provider or ("mcp" if _is_mcp(tool) else None)
    for name in _METHODS:
        method = getattr(tool, name, None)
        if callable(method):
            object.__setattr__(tool, name, _wrapped(tool, method, provider))
    object.__setattr__(tool, _MARK, True)


def _wrapped(tool: Any, method: Callable[..., Any], provider: str | None) -> Callable[..., Any]:
    def start(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Recording:
        recording = begin(f"execute_tool {tool.name}", SpanKind.TOOL)
        recording.put(lambda: tool_call(tool.name, _arguments(args, kwargs), provider))
        return recording

    @functools.wraps(method)
    async def asynchronous(*args: Any, **kwargs: Any) -> Any:
        if id(tool) in _inside.get():
            return await method(*args, **kwargs)
        recording, token = start(args, kwargs), _inside.set(_inside.get() | {id(tool)})
        try:
            with current(recording):
                return _done(recording, await method(*args, **kwargs))
        except BaseException as error:
            recording.failed(error)
            raise
        finally:
            recording.end()
            _inside.reset(token)

    @functools.wraps(method)
    def plain(*args: Any, **kwargs: Any) -> Any:
        if id(tool) in _inside.get():
            return method(*args, **kwargs)
        recording, token = start(args, kwargs), _inside.set(_inside.get() | {id(tool)})
        try:
            with current(recording):
                return _done(recording, method(*args, **kwargs))
        except BaseException as error:
            recording.failed(error)
            raise
        finally:
            recording.end()
            _inside.reset(token)

    return asynchronous if inspect.iscoroutinefunction(method) else plain


def _wrap_session(session: Any, provider: str | None) -> None:
    """An MCP client session: its `call_tool(name, arguments)`."""
    if getattr(session, _MARK, False):
        return
    call: Callable[..., Any] = session.call_tool

    @functools.wraps(call)
    async def traced(name: str, *args: Any, **kwargs: Any) -> Any:
        recording = begin(f"execute_tool {name}", SpanKind.TOOL)
        given = kwargs.get("arguments", args[0] if args else {})
        recording.put(lambda: tool_call(name, given, provider or "mcp"))
        try:
            with current(recording):
                return _done(recording, await call(name, *args, **kwargs))
        except BaseException as error:
            recording.failed(error)
            raise
        finally:
            recording.end()

    object.__setattr__(session, "call_tool", traced)
    object.__setattr__(session, _MARK, True)


def _done(recording: Recording, result: Any) -> Any:
    recording.put(lambda: tool_result(_content(result)))
    recording.ok()
    return result


def _content(result: Any) -> Any:
    """What a message of a framework says; anything else is its own content."""
    if type(result).__name__ in ("ToolMessage", "CallToolResult"):
        return getattr(result, "content", result)
    return result


def _arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The model's arguments: of a tool call those in it, else what was given first."""
    given: Any = args[0] if args else kwargs.get("input", kwargs.get("tool_input", {}))
    if isinstance(given, Mapping):
        call = cast("Mapping[str, Any]", given)
        if call.get("type") == "tool_call" and "args" in call:
            return call["args"]
    return cast("object", given)


def _is_mcp(tool: Any) -> bool:
    """As DashScope finds them out, and by the adapter that made them."""
    if hasattr(tool, "_mcp_tool") or "mcp" in str(getattr(tool, "description", "")).lower():
        return True
    makers = (getattr(tool, name, None) for name in ("coroutine", "func"))
    return any(str(getattr(maker, "__module__", "")).startswith("langchain_mcp") for maker in makers if maker)
