"""Deployments -> Prometheus's text: replicas, calls and tokens of each, since the server started."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from strop.service.fleets import Deployed

Readings = dict[str, tuple[str, Callable[[Deployed], int]]]
"""Name -> what it says, and how it is read."""


def fleet_text(deployed: Mapping[str, Deployed]) -> str:
    return "".join(f"{line}\n" for line in _lines(deployed))


def _lines(deployed: Mapping[str, Deployed]) -> Iterator[str]:
    gauges: Readings = {
        "replicas_wanted": ("Replicas asked for.", lambda one: one.fleet.capacity),
        "replicas_ready": ("Replicas that answer.", lambda one: one.fleet.num_ready),
        "calls_in_flight": ("Calls being answered.", lambda one: one.traffic.in_flight),
    }
    counters: Readings = {
        "prompt_tokens_total": ("Prompt tokens.", lambda one: one.traffic.prompt_tokens),
        "completion_tokens_total": ("Sampled tokens.", lambda one: one.traffic.completion_tokens),
    }
    for kind, readings in (("gauge", gauges), ("counter", counters)):
        for name, (text, read) in readings.items():
            yield from _head(name, text, kind)
            for model, one in deployed.items():
                yield f'strop_deployment_{name}{{deployed_model="{model}"}} {read(one)}'
    yield from _head("calls_total", "Calls by the status their clients got; 499: the client left.", "counter")
    for model, one in deployed.items():
        for status, count in sorted(dict(one.traffic.calls).items()):
            yield f'strop_deployment_calls_total{{deployed_model="{model}",status="{status}"}} {count}'


def _head(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP strop_deployment_{name} {text}"
    yield f"# TYPE strop_deployment_{name} {kind}"
