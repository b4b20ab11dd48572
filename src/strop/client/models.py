"""Steps of `client.models`: the names that jobs and deployments may use."""

from __future__ import annotations

from strop.client.files import segment
from strop.client.wire import Call, Steps, listed, typed
from strop.schema.responses import Listed, ModelInfo


def list_(*, page_no: int = 1, page_size: int = 10, source: str | None = None) -> Steps[Listed[ModelInfo]]:
    """Models; `source` is `custom` (published by training) or `base` (registered), both if not given."""
    params = {"page_no": page_no, "page_size": page_size, "model_source": source}
    return listed(ModelInfo, (yield Call(method="GET", path="models", params=params)), "models")


def get(name: str) -> Steps[ModelInfo]:
    """One model, with the lineage of a published one."""
    return typed(ModelInfo, (yield Call(method="GET", path=f"models/{segment(name)}")))


def delete(name: str) -> Steps[None]:
    """Remove a published model that is not deployed."""
    yield Call(method="DELETE", path=f"models/{segment(name)}", idempotent=False)
