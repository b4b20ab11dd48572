"""A model's size -> how far logprobs computed in bfloat16 may lie from others: the bounds of its tests.

`from fakes.rounding import bfloat16_gap`. bfloat16 has 8 bits of significand, 7 of them stored: neighbours
between 1 and 2 are 2**-7 apart, so rounding to the nearest is off by at most u = 2**-8 of the number. Errors
spread evenly over -u to u have a root mean square of u / sqrt(3).

On its way through a Llama a number is rounded 12 times a layer: after the norm, the projection to queries,
keys and values, the rotation, the scores, the softmax, the sum of values and the output with its residual;
then after the norm, the gate, its silu, the product and the output with its residual. The last norm and the
head round once each. Where the other side computes in float32, the weights of 4 products a layer and of the
head are rounded on this side only, which counts like one more rounding each.

n errors that know nothing of one another add up to sqrt(n) of one. They are relative to the terms of the sum
that is a logit, whose root sum of squares is about the logits' standard deviation over the vocabulary. A
logprob is a logit minus the logarithm of a sum over all of them, which errs no more than one does: sqrt(2).
The largest of `count` errors, taken as normal, is about sqrt(2 ln count) of their root mean square.
"""

from __future__ import annotations

import math

from torch import Tensor

UNIT = 2.0**-8


def bfloat16_gap(
    *, num_layers: int, spread: float, count: int = 1, to_float32: bool = False, of_logits: bool = False
) -> float:
    """How far `count` logprobs, or logits, of one bfloat16 pass lie at most from those of another such pass,
    or with `to_float32` from a float32 pass.

    >>> round(bfloat16_gap(num_layers=2, spread=1.0), 4)
    0.023
    """
    roundings = 12 * num_layers + 2
    roundings += 4 * num_layers + 1 if to_float32 else roundings
    one = UNIT / math.sqrt(3) * math.sqrt(roundings) * spread
    return one * (1.0 if of_logits else math.sqrt(2)) * math.sqrt(max(1.0, 2 * math.log(count)))


def spread_of(logits: Tensor) -> float:
    """The largest standard deviation of the logits of one position."""
    return float(logits.float().std(-1).max())
