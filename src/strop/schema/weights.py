"""Where the weights of a policy are, for whoever samples from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsRef:
    """Weights by the names of the model's `state_dict`: tensors of this process, which change when their
    owner trains on, or a model folder. Exactly one of the two."""

    tensors: Mapping[str, Any] | None = None
    folder: Path | None = None

    def __post_init__(self) -> None:
        if (self.tensors is None) == (self.folder is None):
            raise ValueError("weights are either tensors of this process or a folder")
