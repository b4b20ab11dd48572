"""Jobs, deployments and function instances -> Prometheus's text.

Deployments and instances are counted since this server started them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from strop.schema.job import JobStatus
from strop.service.fleets import Deployed
from strop.workers.gauges import Reading

_INSTANCE_GAUGES: dict[str, tuple[str, Callable[[Reading], float | None]]] = {
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
_INSTANCE_COUNTERS: dict[str, tuple[str, Callable[[Reading], float | None]]] = {
    "calls_total": ("Calls answered.", lambda one: one.calls),
    "starts_total": ("Workers started.", lambda one: one.starts),
    "cold_starts_total": ("Starts that a call waited for with no worker there.", lambda one: one.cold_starts),
    "losses_total": ("Workers that ended by themselves.", lambda one: one.losses),
}


_FLEET_GAUGES: dict[str, tuple[str, Callable[[Deployed], int]]] = {
    "replicas_wanted": ("Replicas asked for.", lambda one: one.fleet.capacity),
    "replicas_ready": ("Replicas that answer.", lambda one: one.fleet.num_ready),
    "calls_in_flight": ("Calls being answered.", lambda one: one.traffic.in_flight),
}
_FLEET_COUNTERS: dict[str, tuple[str, Callable[[Deployed], int]]] = {
    "prompt_tokens_total": ("Prompt tokens.", lambda one: one.traffic.prompt_tokens),
    "completion_tokens_total": ("Sampled tokens.", lambda one: one.traffic.completion_tokens),
}


def prometheus_text(
    jobs: Counter[JobStatus], deployed: Mapping[str, Deployed], instances: Mapping[str, Reading]
) -> str:
    lines: list[str] = []
    for part in (_jobs(jobs), _fleets(deployed), _instances(instances)):
        lines += part
    return "".join(f"{line}\n" for line in lines)


def _jobs(counts: Counter[JobStatus]) -> Iterator[str]:
    yield from _head("strop_jobs", "Jobs by status.", "gauge")
    for status in JobStatus:
        yield f'strop_jobs{{status="{status.value}"}} {counts[status]}'


def _fleets(deployed: Mapping[str, Deployed]) -> Iterator[str]:
    for kind, readings in (("gauge", _FLEET_GAUGES), ("counter", _FLEET_COUNTERS)):
        for name, (text, read) in readings.items():
            yield from _head(f"strop_deployment_{name}", text, kind)
            for model, one in deployed.items():
                yield f'strop_deployment_{name}{{deployed_model="{model}"}} {read(one)}'
    text = "Calls by the status their clients got; 499: the client left."
    yield from _head("strop_deployment_calls_total", text, "counter")
    for model, one in deployed.items():
        for status, count in sorted(dict(one.traffic.calls).items()):
            yield f'strop_deployment_calls_total{{deployed_model="{model}",status="{status}"}} {count}'


def _instances(readings: Mapping[str, Reading]) -> Iterator[str]:
    for kind, described in (("gauge", _INSTANCE_GAUGES), ("counter", _INSTANCE_COUNTERS)):
        for name, (text, read) in described.items():
            yield from _head(f"strop_function_{name}", text, kind)
            for instance_id, one in readings.items():
                if (value := read(one)) is not None:
                    yield f'strop_function_{name}{{instance="{instance_id}"}} {value:g}'
    yield from _head("strop_function_errors_total", "Calls that failed, by type.", "counter")
    for instance_id, one in readings.items():
        for code, count in sorted(one.errors.items()):
            yield f'strop_function_errors_total{{instance="{instance_id}",type="{_escaped(code)}"}} {count}'


def _escaped(label: str) -> str:
    """A function may set any code of its own."""
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _head(name: str, text: str, kind: str) -> Iterable[str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"
