"""Held-out samples -> groups of one: what the policy does when it does not explore, scored as in training.

One rollout a sample at temperature 0. Called by `rl.loop` before the first step, every `eval_steps`,
and after the last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from strop.data.dataset import Dataset
from strop.rl.interfaces import Backends
from strop.rl.reward import RewardPlan, reward
from strop.rl.rollout import Report, RolloutPlan, rollout
from strop.schema.trajectory import Group

MEAN_AT_1 = "validation/data/reward/mean@1"


def validation_is_due(step: int, *, last_step: int, eval_steps: int) -> bool:
    """Before the first step, every `eval_steps`, and at the end."""
    return step % eval_steps == 0 or step == last_step


async def validate(
    dataset: Dataset,
    prefix: str,
    rollouts: RolloutPlan,
    rewards: RewardPlan,
    backends: Backends,
    report: Report,
) -> tuple[Group, ...]:
    """Roll out and score every held-out sample once; `rollouts` is the training plan, made greedy here.

    `prefix` makes the rollouts' ids unique in the run.
    """
    plan = replace(
        rollouts,
        prefix=prefix,
        n_rollouts=1,
        training=False,
        sampling=replace(rollouts.sampling, temperature=0.0),
    )
    groups = await rollout(dataset.samples, plan, backends.gateway, backends.functions, report)
    return await reward(groups, replace(rewards, testing=True), backends.functions)


def mean_at_1(metrics: Mapping[str, float]) -> float | None:
    """The score checkpoints are compared by; None where nothing could be scored."""
    value = metrics.get(MEAN_AT_1, math.nan)
    return value if math.isfinite(value) else None
