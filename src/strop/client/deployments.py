"""Steps of `client.deployments`: serve a model, look at it, scale it, limit it, end it."""

from __future__ import annotations

import time

from strop.client.files import segment
from strop.client.wire import Call, Pause, Steps, listed, typed, without_empty
from strop.errors import ModelError, UnavailableError
from strop.locales import msg
from strop.schema.responses import DeploymentInfo, Listed

_POLL_S = 0.5


def create(
    model_name: str,
    *,
    capacity: int = 1,
    suffix: str | None = None,
    rpm_limit: int | None = None,
    tpm_limit: int | None = None,
) -> Steps[DeploymentInfo]:
    """Serve a model with `capacity` replicas; `wait` until it answers."""
    body = {
        "model_name": model_name,
        "capacity": capacity,
        "suffix": suffix,
        "rpm_limit": rpm_limit,
        "tpm_limit": tpm_limit,
    }
    return typed(
        DeploymentInfo,
        (yield Call(method="POST", path="deployments", body=without_empty(body), idempotent=False)),
    )


def get(deployed_model: str) -> Steps[DeploymentInfo]:
    """One deployment."""
    return typed(DeploymentInfo, (yield Call(method="GET", path=_path(deployed_model))))


def list_(*, page_no: int = 1, page_size: int = 10) -> Steps[Listed[DeploymentInfo]]:
    """Deployments, newest first."""
    params = {"page_no": page_no, "page_size": page_size}
    return listed(
        DeploymentInfo, (yield Call(method="GET", path="deployments", params=params)), "deployments"
    )


def wait(deployed_model: str, *, timeout_s: float = 600.0) -> Steps[DeploymentInfo]:
    """Wait until a deployment answers.

    Raises:
        ModelError: it failed. UnavailableError: it still does not answer after `timeout_s` seconds.
    """
    give_up = time.monotonic() + timeout_s
    while True:
        found = yield from get(deployed_model)
        if found.status == "RUNNING":
            return found
        if found.status == "FAILED":
            raise ModelError(
                msg(
                    "deployment {deployed_model!r} failed: {value}",
                    deployed_model=deployed_model,
                    value=found.error_message or "no reason given",
                )
            )
        if time.monotonic() > give_up:
            raise UnavailableError(
                msg(
                    "deployment {deployed_model!r} is {status} after {timeout_s:g} s",
                    deployed_model=deployed_model,
                    status=found.status,
                    timeout_s=timeout_s,
                )
            )
        yield Pause(_POLL_S)


def scale(deployed_model: str, capacity: int) -> Steps[DeploymentInfo]:
    """Have another number of replicas."""
    path = _path(deployed_model) + "/scale"
    return typed(DeploymentInfo, (yield Call(method="PUT", path=path, body={"capacity": capacity})))


def limit(deployed_model: str, *, rpm_limit: int | None, tpm_limit: int | None) -> Steps[DeploymentInfo]:
    """Set calls and tokens a minute; None is without a limit."""
    body = {"rpm_limit": rpm_limit, "tpm_limit": tpm_limit}
    return typed(
        DeploymentInfo, (yield Call(method="PUT", path=_path(deployed_model) + "/update", body=body))
    )


def delete(deployed_model: str) -> Steps[None]:
    """End a deployment once its answers under way are finished."""
    yield Call(method="DELETE", path=_path(deployed_model), idempotent=False)


def _path(deployed_model: str) -> str:
    return f"deployments/{segment(deployed_model)}"
