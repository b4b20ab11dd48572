"""What the server needs of the training flow, without knowing it: handed in by whoever makes the app."""

from __future__ import annotations

from typing import Any, Protocol

from strop.config.job import JobConfig


class Flow(Protocol):
    """The flow's own checks, so that a job is refused here exactly as `strop run` would refuse it."""

    def check(self, job: dict[str, Any]) -> JobConfig:
        """A job in the form of `job.yaml`, with paths of this machine -> its configuration.

        Raises:
            ConfigError, DataError: everything that is wrong with it and with its rows.
        """
        ...

    def describe(self, config: JobConfig) -> dict[str, Any]:
        """The configuration as the run understands it, without secrets."""
        ...
