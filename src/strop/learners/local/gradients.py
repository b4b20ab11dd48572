"""Where weight gradients are summed: in one full-precision buffer a parameter, written to directly.

A backward pass that multiplies straight into the buffer allocates nothing and adds nothing twice. Backward
functions of `policy` call `add_product`; parameters of other modules go through autograd and are moved by a
hook.
"""

from __future__ import annotations

import torch
from torch import Tensor


def attach_buffer(weight: Tensor, buffer: Tensor) -> None:
    """From now on gradients of `weight` are added to `buffer`, also those that autograd makes."""
    weight.main_grad = buffer  # pyright: ignore[reportAttributeAccessIssue]

    def move(parameter: Tensor) -> None:
        # With equal dtypes the buffer is `.grad` itself, and autograd adds to it in place.
        if parameter.grad is not None and parameter.grad is not buffer:
            buffer.add_(parameter.grad)
            parameter.grad = None

    weight.register_post_accumulate_grad_hook(move)


def buffer_of(weight: Tensor) -> Tensor | None:
    return getattr(weight, "main_grad", None)


def add_product(weight: Tensor, left_NO: Tensor, right_NI: Tensor) -> Tensor | None:
    """Add left^T @ right to the gradient of an (O, I) weight; without a buffer, return it for autograd."""
    if not weight.requires_grad:
        return None
    if (
        adapter := getattr(weight, "adapter", None)
    ) is not None:  # `learners.local.lora`: A and B are trained instead
        adapter.add_product(left_NO, right_NI)
        return None
    buffer = buffer_of(weight)
    if buffer is None:
        return left_NO.t() @ right_NI
    if buffer.dtype == left_NO.dtype:
        buffer.addmm_(left_NO.t(), right_NI)
    else:
        buffer.add_(left_NO.t() @ right_NI)
    return None


def add_value(weight: Tensor, value: Tensor) -> Tensor | None:
    """Add `value` to the gradient of `weight`; without a buffer, return it for autograd."""
    if not weight.requires_grad:
        return None
    buffer = buffer_of(weight)
    if buffer is None:
        return value.to(weight.dtype)
    buffer.add_(value)
    return None


def add_rows(weight: Tensor, rows_N: Tensor, values_NI: Tensor) -> Tensor | None:
    """Add one value row to each named row of the gradient of `weight`; without a buffer, return it for
    autograd."""
    if not weight.requires_grad:
        return None
    buffer = buffer_of(weight)
    target = torch.zeros_like(weight) if buffer is None else buffer
    target.index_add_(0, rows_N, values_NI.to(target.dtype))
    return target if buffer is None else None
