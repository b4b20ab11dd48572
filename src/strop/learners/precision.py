"""What the user asked for -> the dtype this machine should compute in."""

from __future__ import annotations

import torch
from torch import nn

from strop.errors import ModelError
from strop.learners.weights_file import not_finite
from strop.locales import msg
from strop.processor import has_fast_bfloat16


def working_dtype(train_dtype: str) -> tuple[torch.dtype, str | None]:
    """The dtype of the working weights, and a sentence for the user where it will disappoint.

    `auto` is bfloat16 where the processor multiplies it in hardware, else float32: emulated, it is ten to a
    hundred times slower than float32, and less exact.
    """
    match train_dtype:
        case "auto":
            return (torch.bfloat16 if has_fast_bfloat16() else torch.float32), None
        case "float32":
            return torch.float32, None
        case "bfloat16" if has_fast_bfloat16():
            return torch.bfloat16, None
        case "bfloat16":
            return torch.bfloat16, msg(
                "train_dtype bfloat16: this processor has no bfloat16 "
                "instructions (AVX512_BF16, AMX or ARM BF16) and "
                "emulates them many times slower than float32; "
                "train_dtype auto chooses the faster"
            )
        case _:
            raise ValueError(f"train_dtype must be auto, bfloat16 or float32, found {train_dtype!r}")


def compute_in(model: nn.Module, dtype: torch.dtype) -> None:
    """Bring a model to the dtype it computes in.

    bfloat16 ends at 3.39e38 where float32 goes on to 3.40e38: what lies between would silently become
    infinite.

    Raises:
        ModelError: weights that are not finite in `dtype`.
    """
    model.to(dtype)
    if (broken := not_finite(dict(model.named_parameters()))) is not None:
        name = str(dtype).removeprefix("torch.")
        raise ModelError(
            msg(
                "the weights of the model are not all finite in {name}: {broken!r} holds NaN or infinity",
                name=name,
                broken=broken,
            ),
            fix=msg("set train_dtype: float32, or take a model from before its numbers went wrong"),
        )
