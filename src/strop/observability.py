"""`strop.observability`: what the author of a function marks and follows model calls with.

The names are those of DashScope's module of this name; they live in `strop.tracing`.
"""

from strop.tracing import observe_llm, observe_processor, observe_tool, trace_client, trace_tool

__all__ = ["observe_llm", "observe_processor", "observe_tool", "trace_client", "trace_tool"]
