"""Step -> learning rate."""

from __future__ import annotations

import math

from strop.config.job import HyperParameters, Scheduler

# What `lr_warmup_steps: -1` means.
_DEFAULT_WARMUP_SHARE = 0.03


def learning_rate(
    step: int, hyper_parameters: HyperParameters, *, total_steps: int, peak: float | None = None
) -> float:
    """The rate of step `step`, counted from 0, of a run of `total_steps`; `peak` instead of `learning_rate`.

    With w warm-up steps, the first w rise as (step + 1) / w; after them `progress` goes from 0 towards 1,
    which it would reach one step after the last: no step is wasted at rate 0.

    >>> settings = HyperParameters(learning_rate=1.0, lr_scheduler_type=Scheduler.LINEAR, lr_warmup_steps=2)
    >>> [learning_rate(step, settings, total_steps=6) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    peak = hyper_parameters.learning_rate if peak is None else peak
    warmup = warmup_steps(hyper_parameters, total_steps)
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    match hyper_parameters.lr_scheduler_type:
        case Scheduler.CONSTANT:
            factor = 1.0
        case Scheduler.LINEAR:
            factor = 1.0 - progress
        case Scheduler.COSINE:
            factor = 0.5 * (1.0 + math.cos(math.pi * progress))
    return peak * factor


def warmup_steps(hyper_parameters: HyperParameters, total_steps: int) -> int:
    """The configured steps, or 3 % of the run, rounded, for -1."""
    if hyper_parameters.lr_warmup_steps >= 0:
        return hyper_parameters.lr_warmup_steps
    return round(_DEFAULT_WARMUP_SHARE * total_steps)
