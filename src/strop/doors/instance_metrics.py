"""Function instances -> Prometheus's text: workers, queue, cold starts, latencies, errors by type.

What was counted since the instance was last started by this server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from strop.workers.gauges import Reading

_GAUGES: dict[str, tuple[str, Callable[[Reading], float | None]]] = {
    "workers": ("Workers that take calls.", lambda one: one.workers),
    "workers_starting": ("Workers that are starting.", lambda one: one.starting),
    "busy": ("Calls in workers.", lambda one: one.busy),
    "queue": ("Calls that wait for a place.", lambda one: one.queue),
    "memory_bytes": ("Memory of all workers.", lambda one: one.memory_bytes),
    "latency_p50_seconds": (
        "Half of the newest calls took no longer.",
        lambda one: one.p50_s,
    ),
    "latency_p95_seconds": ("95 % of the newest calls took no longer.", lambda one: one.p95_s),
}
_COUNTERS: dict[str, tuple[str, Callable[[Reading], float | None]]] = {
    "calls_total": ("Calls answered.", lambda one: one.calls),
    "starts_total": ("Workers started.", lambda one: one.starts),
    "cold_starts_total": ("Starts that a call waited for with no worker there.", lambda one: one.cold_starts),
    "losses_total": ("Workers that ended by themselves.", lambda one: one.losses),
}


def instance_text(readings: Mapping[str, Reading]) -> str:
    return "".join(f"{line}\n" for line in _lines(readings))


def _lines(readings: Mapping[str, Reading]) -> Iterator[str]:
    for kind, described in (("gauge", _GAUGES), ("counter", _COUNTERS)):
        for name, (text, read) in described.items():
            yield from _head(name, text, kind)
            for instance_id, one in readings.items():
                if (value := read(one)) is not None:
                    yield f'strop_function_{name}{{instance="{instance_id}"}} {value:g}'
    yield from _head("errors_total", "Calls that failed, by type.", "counter")
    for instance_id, one in readings.items():
        for code, count in sorted(one.errors.items()):
            yield f'strop_function_errors_total{{instance="{instance_id}",type="{_escaped(code)}"}} {count}'


def _escaped(label: str) -> str:
    """A function may set any code of its own."""
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _head(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP strop_function_{name} {text}"
    yield f"# TYPE strop_function_{name} {kind}"
