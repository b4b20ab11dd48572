"""Scored groups, update metrics -> go on, or stop with the reason: too many failures teach nothing good.

Called by `rl.loop` after the reward of a step, after its update and after a validation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from strop.errors import TrainingError
from strop.locales import joined, msg
from strop.rl.train_state import TrainState
from strop.schema.function import ENDS_JOB, TaskStatus
from strop.schema.trajectory import Group

SHOWN_ERRORS = 3
"""Different error texts in the reason; the trajectories hold them all."""


MAX_SKIPPED_STEPS = 3
"""One gradient that is not finite can be an accident; three in a row are not."""

SKIPPED = msg("an update was skipped: its gradient is not finite")

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
            msg("were the critic's alone (critic_warmup)"),
            msg("lower critic_warmup"),
        ),
        (
            idle,
            msg("had nothing to learn from: every advantage was 0, as where a group gets one reward"),
            msg("look at the trajectories: the rows may be too easy or too hard, or the reward constant"),
        ),
        (
            at.skipped,
            msg("had no finite gradient"),
            msg("lower learning_rate, or look for extreme rewards or broken rows"),
        ),
        (
            moved,
            msg("had a gradient, or a rate, too small to change any weight"),
            msg("raise learning_rate; with dpo, lower dpo_beta"),
        ),
    ]
    found = [(count, text, fix) for count, text, fix in why if count > 0]
    counts = (msg("{count} {text}", count=count, text=text) for count, text, _ in found)
    counted = joined(msg(", "), *counts)
    return NothingLearned(
        msg(
            "nothing was learned: the weights are those that the run began with. Of {step} steps, {counted}",
            step=at.step,
            counted=counted,
        ),
        fix=joined(msg("; "), *(fix for *_, fix in found)),
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
            msg(
                "{where}: a function reported a failure that ends the job\n    {error}",
                where=where,
                error=final.error,
            ),
            fix=msg("fix the function (its log lines tell more); return retry or discard to drop a sample"),
        )
    too_many = len(failed) > max_failure_rate * len(trajectories)
    if not too_many and len(failed) < len(trajectories):
        return
    texts = Counter((trajectory.error_code or "failed", _headline(trajectory.error)) for trajectory in failed)
    lines = [f"{count} x {code}: {text}" for (code, text), count in texts.most_common(SHOWN_ERRORS)]
    if len(texts) > SHOWN_ERRORS:
        left = len(texts) - SHOWN_ERRORS
        lines.append(msg("... and {left} other errors", left=left))
    advice = msg("fix the function (its log lines tell more)")
    rate = max_failure_rate
    why = (
        msg("more than max_failure_rate = {rate:g} allows", rate=rate)
        if too_many
        else msg("which leaves nothing to learn or to judge from")
    )
    raise TooManyFailures(
        msg(
            "{where}: {num_failed} of {num_trajectories} rollouts failed, {why}",
            where=where,
            num_failed=len(failed),
            num_trajectories=len(trajectories),
            why=why,
        )
        + "\n    "
        + joined(msg("\n    "), *lines),
        fix=advice + msg(", or raise max_failure_rate") if too_many else advice,
    )


def was_skipped(updates: Mapping[str, float]) -> bool:
    """Whether a gradient of the step was not finite, so that an optimizer update was left out."""
    return updates.get("actor/skipped_updates", 0.0) + updates.get("critic/skipped_updates", 0.0) > 0


def skipped_in_a_row(
    before: int,
    updates: Mapping[str, float],
    *,
    look_for: str = msg("extreme rewards in the trajectories of these steps"),
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
            msg(
                "no update of the last {max_skipped_steps} steps had a finite gradient",
                max_skipped_steps=MAX_SKIPPED_STEPS,
            ),
            fix=msg("lower learning_rate, or look for {look_for}", look_for=look_for),
        )
    return before + 1


def _headline(text: str | None) -> str:
    """Tracebacks differ by line numbers and ids; their last line says what happened."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    if not lines:
        return "no text"
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return line if len(line) <= 200 else line[:199] + "…"
