"""What every section of a job file is made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Keys and values that are refused where they are unknown, and never change."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), populate_by_name=True, frozen=True)
