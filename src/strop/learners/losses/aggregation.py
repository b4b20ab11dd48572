"""A value a token -> one scalar, with denominators of the whole update."""

from __future__ import annotations

import torch
from torch import Tensor

from strop.algorithms import AGGREGATIONS, Aggregation


def aggregate(
    values_BT: Tensor,
    mask_BT: Tensor,
    aggregation: Aggregation,
    *,
    max_length: int | None = None,
    weights_B: Tensor | None = None,
    num_tokens: float | None = None,
    num_rows: float | None = None,
) -> Tensor:
    """One scalar from a value a token.

    A row without tokens leaves numerator and denominator; without any token the result is 0 and still has a
    gradient. `weights_B` is what each row counts in a mean over rows. `num_tokens` and `num_rows` are the
    denominators of a whole of which these rows are a part. `max_length` is the constant divisor of
    `seq-mean-token-sum-norm` (Dr. GRPO, arXiv:2503.20783).

    Raises:
        ValueError: unknown aggregation; `max_length` missing, or given where it would have no effect.

    >>> ones = torch.ones(2, 3)
    >>> mask = torch.tensor([[True, True, True], [True, False, False]])
    >>> [float(aggregate(ones, mask, kind)) for kind in ("token-mean", "token-sum", "seq-mean-token-sum")]
    [1.0, 4.0, 2.0]
    """
    if aggregation not in AGGREGATIONS:
        raise ValueError(f"unknown aggregation {aggregation!r}; known: {', '.join(AGGREGATIONS)}")
    if (aggregation == "seq-mean-token-sum-norm") != (max_length is not None):
        raise ValueError(
            f"max_length belongs to 'seq-mean-token-sum-norm' only; found {max_length} for {aggregation!r}"
        )
    mask_BT = mask_BT.bool()
    values_BT = torch.where(mask_BT, values_BT, 0.0)
    if aggregation == "token-sum":
        return values_BT.sum()
    if aggregation == "token-mean":
        return values_BT.sum() / max(float(mask_BT.sum()) if num_tokens is None else num_tokens, 1.0)
    lengths_B = mask_BT.sum(-1)
    weights_B = torch.ones_like(values_BT[:, 0]) if weights_B is None else weights_B.to(values_BT.dtype)
    rows = float((weights_B * (lengths_B > 0)).sum()) if num_rows is None else num_rows
    rows_B = values_BT.sum(-1) * weights_B / (rows or 1.0)
    if aggregation == "seq-mean-token-mean":
        return (rows_B / lengths_B.clamp(min=1)).sum()
    return rows_B.sum() / (max_length or 1)
