"""A module or named tensors -> the tensors a model wants, all there and of the right shape, or an error.

Checked before the first number is copied: weights are never half of one version and half of another.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from strop.errors import EngineError
from strop.locales import msg

WeightSource = nn.Module | Mapping[str, Tensor]


class WeightList:
    """Names and shapes of a model's weights, as `state_dict` has them; tied ones may be left out."""

    def __init__(self, model: PreTrainedModel) -> None:
        tensors = model.state_dict()
        self._shapes = {name: tensor.shape for name, tensor in tensors.items()}
        first_of: dict[int, str] = {}
        self._tied: dict[str, str] = {}
        for name, tensor in tensors.items():
            first = first_of.setdefault(tensor.data_ptr(), name) if tensor.numel() else name
            if first != name and tensors[first].shape == tensor.shape:
                self._tied[name] = first

    def __contains__(self, name: str) -> bool:
        return name in self._shapes

    def read(self, source: WeightSource) -> dict[str, Tensor]:
        """All weights of `source` by name, detached and not copied.

        Raises:
            EngineError: missing or unknown names, or shapes that differ; lists the first few.
        """
        given = source.state_dict() if isinstance(source, nn.Module) else source
        found: dict[str, Tensor] = {}
        problems = [f"{name}: not a weight of this model" for name in given if name not in self._shapes]
        for name, shape in self._shapes.items():
            tensor = given.get(name)
            if tensor is None and name in self._tied:
                tensor = given.get(self._tied[name])
            elif tensor is None:
                # The other way round: only the later name of a tied pair was given.
                tensor = next((given[b] for b, a in self._tied.items() if a == name and b in given), None)
            if tensor is None:
                problems.append(f"{name}: missing")
            elif tensor.shape != shape:
                problems.append(f"{name}: shape {tuple(tensor.shape)}, expected {tuple(shape)}")
            else:
                found[name] = tensor.detach()
        if problems:
            listed = "; ".join(problems[:3]) + (
                f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
            )
            raise EngineError(
                msg("these are not the weights of the engine's model: {listed}", listed=listed),
                fix=msg("give the state_dict of the same architecture, merged if it has adapters"),
            )
        return found


def to_sampling(tensor: Tensor, dtype: torch.dtype, device: torch.device, *, copy: bool = True) -> Tensor:
    """Contiguous, in the sampling precision; with `copy`, never the source's memory."""
    return tensor.to(device=device, dtype=dtype, copy=copy, memory_format=torch.contiguous_format)
