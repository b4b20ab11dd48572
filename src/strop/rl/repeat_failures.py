"""Scored groups of step after step -> the samples that are lost whenever they are drawn.

What fails is dropped, and hard samples fail more often: long answers, slow tests, a judge out of time. So the
data drifts easy without anybody having decided it. `rl.loop` tells of it; the counts are part of its
position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strop.locales import Message, joined, msg
from strop.schema.function import TaskStatus
from strop.schema.trajectory import Group

AGAIN = 2
"""Draws in a row that a sample must be lost in to be told of; and again when it doubles."""

SHOWN = 5


def lost_in_a_row(before: Mapping[str, int], groups: Sequence[Group]) -> dict[str, int]:
    """How many draws in a row each sample has been lost in: fewer than two rollouts survived, for failures.

    >>> lost_in_a_row({"a": 1}, [])
    {'a': 1}
    """
    counts = dict(before)
    for group in groups:
        sample_id = group.sample.sample_id
        failed = any(one.status is TaskStatus.FAILED for one in group.trajectories)
        if failed and len(group.survivors) < 2:
            counts[sample_id] = counts.get(sample_id, 0) + 1
        else:
            counts.pop(sample_id, None)
    return counts


def lost_again(counts: Mapping[str, int]) -> int:
    """Samples that were lost in their last two draws or more."""
    return sum(count >= AGAIN for count in counts.values())


def dropout_text(counts: Mapping[str, int], groups: Sequence[Group]) -> Message | None:
    """What to tell after a step: the samples of it that were lost again, where that is news."""
    news = [
        (group, counts[group.sample.sample_id])
        for group in groups
        if _is_news(counts.get(group.sample.sample_id, 0))
    ]
    if not news:
        return None
    shown = [
        msg(
            "{sample_id} (row {row}, {count} draws): {why}",
            sample_id=group.sample.sample_id,
            row=group.sample.row,
            count=count,
            why=_why(group),
        )
        for group, count in news[:SHOWN]
    ]
    left = len(news) - SHOWN
    more = msg(", and {left} more", left=left) if left > 0 else ""
    told = msg(
        "dropped in every draw so far, so that nothing is learned from them and the data drifts easy: "
    )
    return told + joined(msg("; "), *shown) + more


def _is_news(count: int) -> bool:
    """2, 4, 8 and so on."""
    return count >= AGAIN and count & (count - 1) == 0


def _why(group: Group) -> str:
    errors = [one.error or one.error_code or "failed" for one in group.trajectories if one.error]
    text = errors[0].splitlines()[0] if errors else msg("no survivor")
    return text if len(text) <= 160 else text[:159] + "…"
