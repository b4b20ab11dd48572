"""Scored groups, update metrics -> go on, or stop with the reason: too many failures teach nothing good.

Called by `rl.loop` after the reward of a step, after its update and after a validation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from strop.bilingual import both, chinese, joined
from strop.errors import TrainingError
from strop.rl.train_state import TrainState
from strop.schema.function import ENDS_JOB, TaskStatus
from strop.schema.trajectory import Group

SHOWN_ERRORS = 3
"""Different error texts in the reason; the trajectories hold them all."""


MAX_SKIPPED_STEPS = 3
"""One gradient that is not finite can be an accident; three in a row are not."""

SKIPPED = both("an update was skipped: its gradient is not finite", "跳过了一次更新：其梯度不是有限值")

MAX_ROLLBACKS = 3
"""Returns to a checkpoint in a run. What they do not cure is not chance."""


class TooManyFailures(TrainingError):
    """The weights are untouched by the step that failed, so they can still be saved."""


class NothingFinite(TrainingError):
    """No update of the last steps had a finite gradient: the weights have gone where nothing can be learned,
    or the rewards are out of all proportion."""


class NothingLearned(TrainingError):
    """The run is through and its weights are those that it began with: there is nothing to publish."""


def nothing_learned(at: TrainState, *, critic_warmup: int) -> NothingLearned:
    """Why no weight changed in all the steps of a run, as far as its position tells."""
    warmed = min(at.step, critic_warmup)
    idle, moved = at.idle - warmed, at.step - at.idle - at.skipped
    why = [
        (
            warmed,
            both("were the critic's alone (critic_warmup)", "只更新评论模型（critic_warmup）"),
            both("lower critic_warmup", "减小 critic_warmup"),
        ),
        (
            idle,
            both(
                "had nothing to learn from: every advantage was 0, as where a group gets one reward",
                "无可学习：优势全为 0，例如组内奖励都相同",
            ),
            both(
                "look at the trajectories: the rows may be too easy or too hard, or the reward constant",
                "查看轨迹：数据可能太易或太难，或奖励恒定",
            ),
        ),
        (
            at.skipped,
            both("had no finite gradient", "梯度不是有限值"),
            both(
                "lower learning_rate, or look for extreme rewards or broken rows",
                "降低 learning_rate，或查找极端奖励与损坏的数据行",
            ),
        ),
        (
            moved,
            both(
                "had a gradient, or a rate, too small to change any weight", "梯度或学习率过小，权重没有变化"
            ),
            both(
                "raise learning_rate; with dpo, lower dpo_beta", "提高 learning_rate；用 dpo 时减小 dpo_beta"
            ),
        ),
    ]
    found = [(count, text, fix) for count, text, fix in why if count > 0]
    counts = (both(f"{count} {text}", f"{count} 步{text.zh}") for count, text, _ in found)
    counted = joined(both(", ", "，"), *counts)
    return NothingLearned(
        both(
            "nothing was learned: the weights are those that the run began with. "
            f"Of {at.step} steps, {counted}",
            f"什么也没学到：权重与开始时相同。共 {at.step} 步，其中 {counted.zh}",
        ),
        fix=joined(both("; ", "；"), *(fix for *_, fix in found)),
    )


def stop_if_too_many_failed(groups: Sequence[Group], max_failure_rate: float, *, where: str) -> None:
    """Let up to `max_failure_rate` of the rollouts fail, but never all of them.

    Raises:
        TooManyFailures: more failed; counts and the most frequent error texts are in it. Or one of them
        failed in a way that is to end the job.
    """
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    failed = [trajectory for trajectory in trajectories if trajectory.status is TaskStatus.FAILED]
    final = next((one for one in failed if one.error_code == ENDS_JOB), None)
    if final is not None:
        raise TooManyFailures(
            both(
                f"{where}: a function reported a failure that ends the job\n    {final.error}",
                f"{chinese(where)}：函数报告了终止任务的失败\n    {final.error}",
            ),
            fix=both(
                "mend the function (its log lines tell more); return retry or discard to drop a sample",
                "修正函数（其日志有详情）；若只想丢弃样本，请返回 retry 或 discard",
            ),
        )
    too_many = len(failed) > max_failure_rate * len(trajectories)
    if not too_many and len(failed) < len(trajectories):
        return
    texts = Counter((trajectory.error_code or "failed", _headline(trajectory.error)) for trajectory in failed)
    lines = [f"{count} x {code}: {text}" for (code, text), count in texts.most_common(SHOWN_ERRORS)]
    if len(texts) > SHOWN_ERRORS:
        left = len(texts) - SHOWN_ERRORS
        lines.append(both(f"... and {left} other errors", f"……另有 {left} 种错误"))
    mend = both("mend the function (its log lines tell more)", "修正函数（其日志有详情）")
    rate = max_failure_rate
    why = (
        both(f"more than max_failure_rate = {rate:g} allows", f"超过 max_failure_rate = {rate:g}")
        if too_many
        else both("which leaves nothing to learn or to judge from", "没有可供学习或评判的轨迹")
    )
    raise TooManyFailures(
        both(
            f"{where}: {len(failed)} of {len(trajectories)} rollouts failed, {why}",
            f"{chinese(where)}：{len(trajectories)} 条轨迹中 {len(failed)} 条失败，{why.zh}",
        )
        + "\n    "
        + joined(both("\n    ", "\n    "), *lines),
        fix=mend + both(", or raise max_failure_rate", "，或提高 max_failure_rate") if too_many else mend,
    )


def was_skipped(updates: Mapping[str, float]) -> bool:
    """Whether a gradient of the step was not finite, so that an optimizer update was left out."""
    return updates.get("actor/skipped_updates", 0.0) + updates.get("critic/skipped_updates", 0.0) > 0


def skipped_in_a_row(
    before: int,
    updates: Mapping[str, float],
    *,
    look_for: str = both("extreme rewards in the trajectories of these steps", "这些步轨迹中的极端奖励"),
) -> int:
    """Steps up to this one in which the policy, or its critic, had no update for want of a finite gradient.

    Raises:
        NothingFinite: `MAX_SKIPPED_STEPS` of them.
    """
    stuck = [
        part
        for part in ("actor", "critic")
        if updates.get(f"{part}/skipped_updates", 0.0) > 0 and not updates.get(f"{part}/num_updates")
    ]
    if not stuck:
        return 0
    if before + 1 >= MAX_SKIPPED_STEPS:
        raise NothingFinite(
            both(
                f"no update of the last {MAX_SKIPPED_STEPS} steps had a finite gradient",
                f"最近 {MAX_SKIPPED_STEPS} 步的更新都没有有限的梯度",
            ),
            fix=both(
                f"lower learning_rate, or look for {look_for}",
                f"降低 learning_rate，或查找{chinese(look_for)}",
            ),
        )
    return before + 1


def _headline(text: str | None) -> str:
    """Tracebacks differ by line numbers and ids; their last line says what happened."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    if not lines:
        return "no text"
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return line if len(line) <= 200 else line[:199] + "…"
