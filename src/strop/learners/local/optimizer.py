"""Model -> AdamW on full-precision weights, with gradients summed in full precision.

In float32 the model's own parameters are stepped. In bfloat16 the model holds working copies: each parameter
has a float32 master weight that is stepped and copied back, so that small updates are not rounded away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from strop.learners.local.gradients import attach_buffer

_BETAS = (0.9, 0.95)


class Optimizer:
    """Owns master weights, gradient buffers and AdamW state of a model's trainable parameters."""

    def __init__(self, model: nn.Module, *, weight_decay: float) -> None:
        self._working = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.masters: dict[str, Tensor] = {}
        for name, weight in self._working.items():
            exact = torch.promote_types(weight.dtype, torch.float32)
            # `.to` gives the parameter itself where the dtype is right already.
            self.masters[name] = weight.detach().to(exact) if weight.dtype != exact else weight
            self.masters[name].grad = torch.zeros_like(self.masters[name])
            attach_buffer(weight, self._gradient(name))
        decayed = [weight for weight in self.masters.values() if weight.ndim > 1]
        plain = [weight for weight in self.masters.values() if weight.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
        self._adam = torch.optim.AdamW(
            [group for group in groups if group["params"]], betas=_BETAS, fused=True
        )

    def zero_gradients(self) -> None:
        for name in self.masters:
            self._gradient(name).zero_()

    def step(self, learning_rate: float, *, max_grad_norm: float) -> tuple[bool, float]:
        """Clip the gradient to a global norm and step.

        Returns:
            Whether it stepped, and the norm before clipping. A norm that is not finite changes nothing.
        """
        gradients = [self._gradient(name) for name in self.masters]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if not math.isfinite(norm):
            return False, norm
        if norm > max_grad_norm:
            for gradient in gradients:
                gradient.mul_(max_grad_norm / norm)
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
        self._adam.step()
        self._copy_back()
        return True, norm

    def state(self) -> dict[str, Tensor]:
        """AdamW's tensors by parameter name, for `load_state`."""
        found: dict[str, Tensor] = {}
        for name, weight in self.masters.items():
            for part, value in self._adam.state.get(weight, {}).items():
                found[f"{part}/{name}"] = value
        return found

    def load_state(self, masters: dict[str, Tensor], state: dict[str, Tensor]) -> None:
        """Continue from saved master weights and AdamW state; weights that were never stepped have none."""
        with torch.no_grad():
            for name, weight in self.masters.items():
                weight.copy_(masters[name])
        self._adam.state.clear()
        for key, value in state.items():
            part, name = key.split("/", 1)
            self._adam.state[self.masters[name]][part] = value.clone()
        self._copy_back()

    def _gradient(self, name: str) -> Tensor:
        gradient = self.masters[name].grad
        assert gradient is not None  # set once in __init__, never dropped
        return gradient

    @torch.no_grad()
    def _copy_back(self) -> None:
        for working, master in self._pairs():
            working.copy_(master)

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        for name, working in self._working.items():
            if working is not self.masters[name]:
                yield working, self.masters[name]
