"""Values -> an address that Prometheus scrapes: the newest value of each metric of this run.

One family with the metric as a label, since names of functions and their metrics are users' own:
`strop_job_metric{job_id="ft-...",metric="critic/rewards/mean"}`.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from strop.schema.job import JobStatus
from strop.schema.watching import TrackerConfig
from strop.trackers.sink import TrackedRun

PORT = 9464


class Prometheus:
    """Answers until the run has ended."""

    def __init__(self, config: TrackerConfig, run: TrackedRun) -> None:
        registry = CollectorRegistry()
        self._job_id = run.job_id
        self._values = Gauge(
            "strop_job_metric",
            "Newest value of a metric of the run.",
            ["job_id", "metric"],
            registry=registry,
        )
        self._step = Gauge("strop_job_step", "Newest step of the run.", ["job_id"], registry=registry)
        port = PORT if config.port is None else config.port
        self._server, self._thread = start_http_server(port, config.host or "127.0.0.1", registry)
        host, bound = self._server.server_address[:2]
        self.where = f"http://{host}:{bound}/metrics"

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._values.labels(self._job_id, name).set(value)
        self._step.labels(self._job_id).set(step)

    def close(self, status: JobStatus | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
