"""Trajectories as pages list them: brief, filtered, by step and by sample; whole ones by their key.

The narrow index on the table answers every filter that is a column; words and tools stand inside packed
messages, so those are looked for row by row within a bound, and the page says how far that came.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import Session

from strop.errors import MissingError
from strop.locales import msg
from strop.schema.function import TaskStatus
from strop.store.trajectories import Recorded, TrajectoryRow, TurnRow, recorded_row

SCAN_S = 0.15
"""Seconds that one page may look through messages; then it says where it stopped."""

_SCAN_ROWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """A line of a list. `key` names the row: rollout ids come again in other steps."""

    key: int
    step: int
    split: str
    rollout_id: str
    group_id: str
    sample_id: str
    status: TaskStatus
    reward: float | None
    attempts: int
    num_turns: int
    num_sampled_tokens: int
    rollout_s: float
    reward_s: float
    error_code: str | None


_BRIEF = (
    TrajectoryRow.id,
    TrajectoryRow.step,
    TrajectoryRow.split,
    TrajectoryRow.rollout_id,
    TrajectoryRow.group_id,
    TrajectoryRow.sample_id,
    TrajectoryRow.status,
    TrajectoryRow.reward,
    TrajectoryRow.attempts,
    TrajectoryRow.num_turns,
    TrajectoryRow.num_sampled_tokens,
    TrajectoryRow.rollout_s,
    TrajectoryRow.reward_s,
    TrajectoryRow.error_code,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which trajectories. Both reward bounds are inclusive; with either, unscored ones are left out."""

    split: str | None = None
    step: int | None = None
    sample_id: str | None = None
    rollout_id: str | None = None
    status: TaskStatus | None = None
    min_reward: float | None = None
    max_reward: float | None = None
    tool: str = ""
    text: str = ""

    @property
    def scans(self) -> bool:
        """Whether messages must be looked through."""
        return bool(self.tool or self.text)

    def conditions(self, job_id: str) -> list[ColumnElement[bool]]:
        found = [TrajectoryRow.job_id == job_id]
        equal = {
            "split": self.split,
            "step": self.step,
            "sample_id": self.sample_id,
            "rollout_id": self.rollout_id,
            "status": self.status.value if self.status else None,
        }
        found += [getattr(TrajectoryRow, name) == value for name, value in equal.items() if value is not None]
        if self.min_reward is not None:
            found.append(TrajectoryRow.reward >= self.min_reward)
        if self.max_reward is not None:
            found.append(TrajectoryRow.reward <= self.max_reward)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`next` continues the list, None at its end. `unfinished`: the time for looking through messages was
    over before the page was full."""

    items: tuple[Brief, ...]
    next: int | None
    unfinished: bool = False


def find_trajectories(
    session: Session, job_id: str, wanted: Wanted, *, before: int | None = None, limit: int = 50
) -> Found:
    """The newest first; `before` is the `next` of the page before."""
    if wanted.scans:
        return _scan(session, job_id, wanted, before, limit)
    keys = _keys(session, job_id, wanted, before, limit + 1)
    items = _briefs(session, keys[:limit])
    return Found(items=items, next=keys[limit - 1] if len(keys) > limit else None)


def _keys(session: Session, job_id: str, wanted: Wanted, before: int | None, limit: int) -> list[int]:
    query = select(TrajectoryRow.id).where(*wanted.conditions(job_id))
    if before is not None:
        query = query.where(TrajectoryRow.id < before)
    return list(session.scalars(query.order_by(TrajectoryRow.id.desc()).limit(limit)))


def _briefs(session: Session, keys: Sequence[int]) -> tuple[Brief, ...]:
    rows = session.execute(
        select(*_BRIEF).where(TrajectoryRow.id.in_(keys)).order_by(TrajectoryRow.id.desc())
    )
    return tuple(_brief(row) for row in rows)


def _brief(row: Any) -> Brief:
    names = [column.key if column.key != "id" else "key" for column in _BRIEF]
    values: dict[str, Any] = dict(zip(names, row, strict=True))
    values["status"] = TaskStatus(values["status"])
    return Brief(**values)


def _scan(session: Session, job_id: str, wanted: Wanted, before: int | None, limit: int) -> Found:
    give_up = time.monotonic() + SCAN_S
    kept: list[int] = []
    while True:
        keys = _keys(session, job_id, wanted, before, _SCAN_ROWS)
        rows = session.execute(
            select(TrajectoryRow.id, TrajectoryRow.messages)
            .where(TrajectoryRow.id.in_(keys))
            .order_by(TrajectoryRow.id.desc())
        )
        for key, messages in rows:
            before = key
            if _holds(messages, wanted):
                kept.append(key)
            if len(kept) == limit:
                return Found(items=_briefs(session, kept), next=before)
        if len(keys) < _SCAN_ROWS:
            return Found(items=_briefs(session, kept), next=None)
        if time.monotonic() > give_up:
            return Found(items=_briefs(session, kept), next=before, unfinished=True)


def _holds(messages: list[dict[str, Any]], wanted: Wanted) -> bool:
    if wanted.tool and wanted.tool not in tools_called(messages):
        return False
    word = wanted.text.lower()
    return not word or any(word in text.lower() for text in texts_of(messages))


def functions_called(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The `function` of each tool call in a message."""
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    return [call.get("function") or {} for call in calls]


def tools_called(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the tools that the model called, in order, each as often as it was called."""
    return [str(one.get("name", "")) for message in messages for one in functions_called(message)]


def texts_of(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """All that was said, arguments of tool calls included."""
    texts: list[str] = []
    for message in messages:
        content = message.get("content")
        texts.append("" if content is None else str(content))
        texts += [str(one.get("arguments", "")) for one in functions_called(message)]
    return texts


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpan:
    """The recorded steps around one; None where no such step is recorded."""

    first: int | None
    last: int | None
    before: int | None
    after: int | None


def step_span(session: Session, job_id: str, split: str, step: int | None) -> StepSpan:
    """Which steps have trajectories, in single looks at the index."""
    mine = (TrajectoryRow.job_id == job_id, TrajectoryRow.split == split)

    def look(what: Any, *also: ColumnElement[bool]) -> int | None:
        return session.scalar(select(what).where(*mine, *also))

    lowest, highest = func.min(TrajectoryRow.step), func.max(TrajectoryRow.step)
    last = look(highest)
    at = step if step is not None else last
    return StepSpan(
        first=look(lowest),
        last=last,
        before=None if at is None else look(highest, TrajectoryRow.step < at),
        after=None if at is None else look(lowest, TrajectoryRow.step > at),
    )


def splits_of(session: Session, job_id: str) -> list[str]:
    """The splits that have trajectories, `train` first."""
    there = (
        split
        for split in ("train", "validation")
        if session.scalar(
            select(TrajectoryRow.id)
            .where(TrajectoryRow.job_id == job_id, TrajectoryRow.split == split)
            .limit(1)
        )
        is not None
    )
    return list(there)


def of_step(session: Session, job_id: str, split: str, step: int, *, limit: int = 2000) -> tuple[Brief, ...]:
    """All rollouts of a step, in order of samples."""
    query = (
        select(*_BRIEF)
        .where(TrajectoryRow.job_id == job_id, TrajectoryRow.split == split, TrajectoryRow.step == step)
        .order_by(TrajectoryRow.id)
        .limit(limit)
    )
    return tuple(_brief(row) for row in session.execute(query))


def of_sample(
    session: Session, job_id: str, sample_id: str, *, split: str | None = None, limit: int = 2000
) -> tuple[Brief, ...]:
    """All rollouts of a sample across the steps."""
    query = select(*_BRIEF).where(TrajectoryRow.job_id == job_id, TrajectoryRow.sample_id == sample_id)
    if split is not None:
        query = query.where(TrajectoryRow.split == split)
    rows = session.execute(query.order_by(TrajectoryRow.id).limit(limit))
    return tuple(_brief(row) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLine:
    """How a sample has gone over all steps. `mean` is None where nothing was scored."""

    sample_id: str
    num_rollouts: int
    num_failed: int
    mean: float | None
    low: float | None
    high: float | None
    last_step: int


def list_samples(
    session: Session, job_id: str, split: str, *, after: str | None = None, limit: int = 50
) -> tuple[tuple[SampleLine, ...], str | None]:
    """In the order of their ids, and what to pass as `after` for those that follow."""
    failed = func.sum(case((TrajectoryRow.status == TaskStatus.FAILED.value, 1), else_=0))
    query = (
        select(
            TrajectoryRow.sample_id,
            func.count(),
            failed,
            func.avg(TrajectoryRow.reward),
            func.min(TrajectoryRow.reward),
            func.max(TrajectoryRow.reward),
            func.max(TrajectoryRow.step),
        )
        .where(TrajectoryRow.job_id == job_id, TrajectoryRow.split == split)
        .group_by(TrajectoryRow.sample_id)
        .order_by(TrajectoryRow.sample_id)
        .limit(limit + 1)
    )
    if after is not None:
        query = query.where(TrajectoryRow.sample_id > after)
    rows = session.execute(query).all()
    lines = tuple(
        SampleLine(
            sample_id=row[0],
            num_rollouts=row[1],
            num_failed=row[2],
            mean=row[3],
            low=row[4],
            high=row[5],
            last_step=row[6],
        )
        for row in rows[:limit]
    )
    return lines, lines[-1].sample_id if len(rows) > limit else None


def get_by_key(session: Session, job_id: str, key: int) -> tuple[Brief, Recorded]:
    """One trajectory with its turns.

    Raises:
        MissingError: the job has no trajectory of that key.
    """
    row = session.get(TrajectoryRow, key)
    if row is None or row.job_id != job_id:
        raise MissingError(
            msg("job {job_id!r} has no trajectory {key}", job_id=job_id, key=key),
            fix=msg("take one from the job's lists"),
        )
    turns = session.scalars(select(TurnRow).where(TurnRow.trajectory_id == key).order_by(TurnRow.position))
    (brief,) = _briefs(session, [key])
    return brief, recorded_row(row, tuple(turn.turn() for turn in turns))
