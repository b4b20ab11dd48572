"""Our metrics under Ark's names: a second way to read the same curves. Nothing is computed here.

The server's `naming=ark`, `strop jobs metrics --names ark` and a switch of the console use it. Ark publishes
no timing, throughput or asynchronous metrics, so those have no name here. What Ark shows and no run here
measures stands in `UNMEASURED`, with the reason.

Source:
    Volcano Ark, "RL best practice": train/... and test/... with one set of names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SAME: dict[str, str] = {
    "trace/training/epoch": "train/epoch",
    "trajectory/prompt_length/mean": "train/generation/prompt_length.mean",
    "trajectory/prompt_length/max": "train/generation/prompt_length.max",
    "trajectory/prompt_length/clip_ratio": "train/generation/prompt_length.clipfrac",
    "trajectory/response_length/mean": "train/generation/response_length.mean",
    "trajectory/response_length/max": "train/generation/response_length.max",
    "trajectory/response_length/clip_ratio": "train/generation/response_length.clipfrac",
    "critic/score/mean": "train/reward/final_rewards",
    "critic/advantages/mean": "train/advantage/advantages",
    "critic/returns/mean": "train/advantage/returns",
    "actor/lr": "train/actor/lr",
    "actor/grad_norm": "train/actor/grad_norm",
    "actor/loss": "train/actor/loss",
    "actor/pg_loss": "train/actor/pg_loss",
    "actor/entropy": "train/actor/entropy",
    "actor/kl_loss": "train/actor/kl_loss",
    "actor/pg_clipfrac": "train/actor/pg_clipfrac",
    "actor/pg_clipfrac_lower": "train/actor/pg_clipfrac2",
    "critic/lr": "train/critic/lr",
    "critic/grad_norm": "train/critic/grad_norm",
    "critic/vf_loss": "train/critic/vf_loss",
    "critic/vf_clipfrac": "train/critic/vf_clipfrac",
    "validation/data/reward/mean@1": "test/reward/final_rewards",
    "validation/data/response_length/mean": "test/generation/response_length.mean",
    "validation/data/response_length/clip_ratio": "test/generation/response_length.clipfrac",
}

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"trace/reward/(.+)/avg", r"train/reward/functions/\1/rewards(mean)"),
        (r"trace/reward/(.+)/bon", r"train/reward/functions/\1/rewards(bon)"),
        (r"trace/reward/(.+)/won", r"train/reward/functions/\1/rewards(won)"),
        (r"validation/data/reward/(.+)/mean@1", r"test/reward/functions/\1/rewards(mean)"),
        (r"trace/reward_metrics/(.+)/avg", r"train/custom/\1.mean"),
        (r"trace/reward_metrics/(.+)/(max|min)", r"train/custom/\1.\2"),
        (r"trace/rollout_metrics/(.+)/avg", r"train/rollout/\1.mean"),
    )
)

UNMEASURED: dict[str, tuple[str, str]] = {
    "train/batch_size": (
        "a setting: batch_size in the job's configuration",
        "是设置：见任务配置中的 batch_size",
    ),
    "train/num_sampling": (
        "a setting: n_rollouts in the job's configuration",
        "是设置：见任务配置中的 n_rollouts",
    ),
    "train/global_step": ("the axis of every curve", "即每条曲线的横轴"),
    "train/num_samples": ("without a function on Ark, too", "在方舟上也没有作用"),
    "train/num_replicated_samples": ("without a function on Ark, too", "在方舟上也没有作用"),
    "train/actor/logprobs": (
        "not recorded; actor/entropy is what it estimates",
        "未记录；它所估计的量即 actor/entropy",
    ),
    "train/actor/pg_clipfrac_high": (
        "both bounds are counted in actor/pg_clipfrac",
        "上下界合计于 actor/pg_clipfrac",
    ),
    "train/actor/pg_clipfrac_low": (
        "both bounds are counted in actor/pg_clipfrac",
        "上下界合计于 actor/pg_clipfrac",
    ),
    "train/actor/vf_clipfrac_high": (
        "both bounds are counted in critic/vf_clipfrac",
        "上下界合计于 critic/vf_clipfrac",
    ),
    "train/actor/vf_clipfrac_low": (
        "both bounds are counted in critic/vf_clipfrac",
        "上下界合计于 critic/vf_clipfrac",
    ),
}
"""Ark's names that no curve here stands under, each with the reason in English and Chinese."""


def ark_name(name: str) -> str | None:
    """What Ark calls one of our metrics; None where it has no such metric.

    >>> ark_name("trace/reward/accuracy/bon")
    'train/reward/functions/accuracy/rewards(bon)'
    >>> ark_name("timing/s/step") is None
    True
    """
    if name in _SAME:
        return _SAME[name]
    for pattern, theirs in _PATTERNS:
        if (found := pattern.fullmatch(name)) is not None:
            return found.expand(theirs)
    return None


def by_ark_name(names: Iterable[str]) -> dict[str, str]:
    """Ark's name -> ours, for those of `names` that have one, in their order."""
    return {theirs: name for name in names if (theirs := ark_name(name)) is not None}


def table() -> list[tuple[str, str]]:
    """(Ark's, ours) with `<placeholders>`, for the documentation."""
    open_named = (
        ("train/reward/functions/<name>/rewards(mean)", "trace/reward/<name>/avg"),
        ("train/reward/functions/<name>/rewards(bon)", "trace/reward/<name>/bon"),
        ("train/reward/functions/<name>/rewards(won)", "trace/reward/<name>/won"),
        ("test/reward/functions/<name>/rewards(mean)", "validation/data/reward/<name>/mean@1"),
        ("train/custom/<name>/<metric>.mean", "trace/reward_metrics/<name>/<metric>/avg"),
        ("train/custom/<name>/<metric>.max", "trace/reward_metrics/<name>/<metric>/max"),
        ("train/custom/<name>/<metric>.min", "trace/reward_metrics/<name>/<metric>/min"),
        ("train/rollout/<metric>.mean", "trace/rollout_metrics/<metric>/avg"),
    )
    return [*((theirs, ours) for ours, theirs in _SAME.items()), *open_named]
