"""Weight matrix -> a multiplication that is fast for few rows: packed once into oneDNN's blocked layout.

Packing is worth 1.1 to 2 times (most for the head and for few rows) on the processors measured. It uses
private operators of torch; where they are missing, or refuse the dtype, plain multiplication takes their
place.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

TYPICAL_ROWS = 64
"""Rows that the packed layout is chosen for; any number works."""


class Linear(Protocol):
    def __call__(self, x_NE: Tensor) -> Tensor: ...

    def plus(self, x_NE: Tensor, residual_NF: Tensor) -> Tensor:
        """The product added to `residual_NF`, in one pass where that exists."""
        ...


class PlainLinear:
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x_NE: Tensor) -> Tensor:
        return F.linear(x_NE, self._weight, self._bias)

    def plus(self, x_NE: Tensor, residual_NF: Tensor) -> Tensor:
        if self._bias is None:
            return torch.addmm(residual_NF, x_NE, self._weight.t())
        return F.linear(x_NE, self._weight, self._bias) + residual_NF


class PackedLinear:
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL_ROWS)
        self._bias = bias

    def __call__(self, x_NE: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x_NE, self._weight, self._bias, "none", [], "")

    def plus(self, x_NE: Tensor, residual_NF: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.binary(x_NE, residual_NF, self._weight, self._bias, "add")


def packing_works(dtype: torch.dtype, device: torch.device) -> bool:
    """Try it on a small matrix, so that another build of torch costs speed and nothing else."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 32, generator=generator).to(dtype)
    x, residual = (torch.randn(3, width, generator=generator).to(dtype) for width in (32, 48))
    bias = torch.randn(48, generator=generator).to(dtype)
    try:
        packed = PackedLinear(weight, bias)
        found = packed(x), packed.plus(x, residual)
    except (AttributeError, RuntimeError, TypeError):
        return False
    plain = PlainLinear(weight, bias)
    expected = plain(x), plain.plus(x, residual)
    tolerance = 1e-4 if dtype == torch.float32 else 0.2
    return all(
        torch.allclose(a, b, atol=tolerance, rtol=tolerance) for a, b in zip(found, expected, strict=True)
    )


def make_linear(weight: Tensor, bias: Tensor | None, *, packed: bool) -> Linear:
    """Takes over `weight`, unless `packed`, which copies: else give it a copy of what is somebody else's."""
    return PackedLinear(weight, bias) if packed else PlainLinear(weight, bias)
