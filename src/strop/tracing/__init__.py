"""What a run can be seen by: spans of functions, model calls and tools, and the registry of metrics.

`observe_processor`, `observe_llm` and `observe_tool` mark functions; `trace_client` and `trace_tool` follow
clients and tools. `metrics` answers what a metric's name means and refuses undeclared names. Pure
Python, no torch, no database; OpenTelemetry is loaded when the first span is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from strop.tracing.clients import trace_client
    from strop.tracing.observe import observe_llm, observe_processor, observe_tool
    from strop.tracing.tools import trace_tool

__all__ = ["observe_llm", "observe_processor", "observe_tool", "trace_client", "trace_tool"]

_PLACES = {
    "observe_llm": "observe",
    "observe_processor": "observe",
    "observe_tool": "observe",
    "trace_client": "clients",
    "trace_tool": "tools",
}


def __getattr__(name: str) -> object:
    """Loaded when first used: reading the registry needs none of it."""
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
