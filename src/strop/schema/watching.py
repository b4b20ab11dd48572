"""What a job file says of who else watches the run: trackers of its curves, and what a diagnosis does."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import ip_address
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from strop.schema.section import Contradiction, Section


class TrackerType(StrEnum):
    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"
    PROMETHEUS = "prometheus"


def is_server(tracking_uri: str) -> bool:
    """
    >>> [is_server(uri) for uri in ("https://mlflow.example", "sqlite:////data/mlflow.db", "http://[")]
    [True, False, False]
    """
    try:
        return urlsplit(tracking_uri).scheme in ("http", "https")
    except ValueError:  # brackets of no address
        return False


def is_loopback(host: str) -> bool:
    """
    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.3", "::")]
    [True, True, True, False, False, False]
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class TrackerConfig(Section):
    """Where else a run's curves go. `tracking_uri` and `experiment` are MLflow's, `project`, `entity` and
    `mode` Weights & Biases', `host` and `port` where Prometheus finds the run. Keys of access are no
    settings: MLflow and Weights & Biases read theirs from the environment.
    """

    type: TrackerType
    tracking_uri: str | None = Field(default=None, min_length=1)
    experiment: str | None = Field(default=None, min_length=1)
    project: str | None = Field(default=None, min_length=1)
    entity: str | None = Field(default=None, min_length=1)
    mode: Literal["online", "offline"] | None = None
    host: str | None = Field(default=None, min_length=1)
    port: int | None = Field(default=None, ge=0, le=65_535)

    @model_validator(mode="after")
    def _of_its_type(self) -> Self:
        for kind, keys in _KEYS.items():
            for key in keys if kind is not self.type else ():
                if getattr(self, key) is not None:
                    text = f"{key}: has no effect on {self.type.value}"
                    raise Contradiction(text, fix=f"remove it; it is for {kind.value}")
        if self.tracking_uri is not None and "@" in urlsplit(self.tracking_uri).netloc:
            text = "tracking_uri: contains a user name or password, which would end up in the job's record"
            raise Contradiction(text, fix="set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead")
        return self


_KEYS = {
    TrackerType.TENSORBOARD: (),
    TrackerType.MLFLOW: ("tracking_uri", "experiment"),
    TrackerType.WANDB: ("project", "entity", "mode"),
    TrackerType.PROMETHEUS: ("host", "port"),
}


class WebhookConfig(Section):
    """Where findings are sent as they begin and end. With a `secret`, each is signed by Standard Webhooks."""

    url: str = Field(max_length=2048)
    secret: str | None = Field(default=None, max_length=256)

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # brackets of no address, a port that is no number
            usable = False
        if not usable:
            raise Contradiction(
                "url: is not the address of a web server", fix="e.g. https://example.com/hook"
            )
        if self.secret is not None and len(self.secret) < 16:
            raise Contradiction("secret: is too short for signing", fix="use 16 characters or more")
        return self


class DiagnosisConfig(Section):
    """What a finding does beside being shown. `stop_on` are rules (`P4`, `hack_length`) and severities: a run
    ends with the first finding of such a rule, or of at least such a severity.
    """

    stop_on: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    webhook: WebhookConfig | None = None
