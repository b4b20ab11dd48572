"""Scored groups -> go on, or stop with the reason: a step in which too much failed teaches nothing good.

Called by `pipeline.loop` after the reward of a step and after a validation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from strop.errors import TrainingError
from strop.schema.function import TaskStatus
from strop.schema.trajectory import Group

SHOWN_ERRORS = 3
"""Different error texts in the reason; the trajectories hold them all."""


class TooManyFailures(TrainingError):
    """The weights are untouched by the step that failed, so they can still be saved."""


def stop_if_too_many_failed(groups: Sequence[Group], max_failure_rate: float, *, where: str) -> None:
    """Let up to `max_failure_rate` of the rollouts fail, but never all of them.

    Raises:
        TooManyFailures: more failed; counts and the most frequent error texts are in it.
    """
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    failed = [trajectory for trajectory in trajectories if trajectory.status is TaskStatus.FAILED]
    too_many = len(failed) > max_failure_rate * len(trajectories)
    if not too_many and len(failed) < len(trajectories):
        return
    texts = Counter((trajectory.error_code or "failed", _headline(trajectory.error)) for trajectory in failed)
    lines = [f"{count} x {code}: {text}" for (code, text), count in texts.most_common(SHOWN_ERRORS)]
    if len(texts) > SHOWN_ERRORS:
        lines.append(f"... and {len(texts) - SHOWN_ERRORS} other errors")
    mend = "mend the function (its log lines tell more)"
    raise TooManyFailures(
        f"{where}: {len(failed)} of {len(trajectories)} rollouts failed, "
        + (
            f"more than max_failure_rate = {max_failure_rate:g} allows"
            if too_many
            else "which leaves nothing to learn or to judge from"
        )
        + "\n    "
        + "\n    ".join(lines),
        fix=f"{mend}, or raise max_failure_rate" if too_many else mend,
    )


def _headline(text: str | None) -> str:
    """Tracebacks differ by line numbers and ids; their last line says what happened."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    if not lines:
        return "no text"
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return line if len(line) <= 200 else line[:199] + "…"
