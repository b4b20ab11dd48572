"""Learner + position -> checkpoint folders: when to save, and which ones stay.

`save_total_limit` removes the oldest, but never the best by validation and never the newest: with a limit of
1 both may lie there. The writing itself is the `CheckpointWriter`'s. Called by `rl.loop` after a step.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from strop.config.job import HyperParameters, SaveStrategy
from strop.errors import CheckpointError, told_of
from strop.locales import Message, msg
from strop.rl.interfaces import CheckpointWriter, Recorder
from strop.schema.training import best_validated

WAITS_S = (1, 2, 4, 8, 15, 30, *[60] * 29)
"""Between two tries to write what the run cannot end without: half an hour to make room on a full disk."""

Wait = Callable[[float], Awaitable[bool]]
"""Lets seconds pass; True if the run was asked to end meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A checkpoint on disk: its step, its folder's name, its validation if measured at that step."""

    step: int
    name: str
    validation: float | None
    published: bool


def save_is_due(hyper: HyperParameters, step: int, *, epoch_ended: bool) -> bool:
    """Whether `save_strategy` asks for a checkpoint after this step. The last step saves whatever it says."""
    match hyper.save_strategy:
        case SaveStrategy.STEPS:
            return step % hyper.save_steps == 0
        case SaveStrategy.EPOCH:
            return epoch_ended
        case SaveStrategy.NO:
            return False


def to_remove(kept: Sequence[Kept], limit: int, *, lower_is_better: bool = False) -> list[Kept]:
    """The oldest beyond `limit`, without the best by validation (of equals the newest) and the newest.

    >>> scores = {1: 0.2, 2: 0.9, 3: 0.4, 4: 0.5}
    >>> shelf = [Kept(step=s, name="", validation=v, published=False) for s, v in scores.items()]
    >>> [one.step for one in to_remove(shelf, 2)]
    [1, 3]
    """
    by_age = sorted(kept, key=lambda one: one.step)
    best = best_validated(by_age, lower_is_better=lower_is_better)
    spare = [one for one in by_age[:-1] if one is not best]
    return spare[: max(0, len(by_age) - limit)]


class CheckpointManager:
    """The checkpoints of a run, below `folder`."""

    def __init__(
        self,
        folder: Path,
        limit: int,
        writer: CheckpointWriter,
        recorder: Recorder,
        wait: Wait,
        *,
        lower_is_better: bool = False,
    ) -> None:
        """`lower_is_better`: validation is a loss and no score."""
        self._folder = folder
        self._limit = limit
        self._writer = writer
        self._recorder = recorder
        self._lower_is_better = lower_is_better
        self._wait = wait
        self.kept: list[Kept] = []
        self._resumed_from: Path | None = None

    @property
    def newest(self) -> Path | None:
        return self._folder / self.kept[-1].name if self.kept else self._resumed_from

    @property
    def best(self) -> Path | None:
        """Of those that are still there the one that validated best, if any was validated."""
        return best_below(self._folder, self.kept, lower_is_better=self._lower_is_better)

    def take_over(self, kept: Sequence[Kept], resumed_from: Path, *, step: int) -> None:
        """Go on with an earlier sitting's checkpoints, as far as they lie on this shelf.

        Later ones than `step`, from which the run goes on, are of a past that now comes otherwise: they get
        another name, under which nobody takes them for the newest.
        """
        self.kept = [one for one in kept if (self._folder / one.name).is_dir()]
        self._resumed_from = resumed_from
        for one in kept:
            if one not in self.kept:  # deleted by hand, or by a sitting that was killed before it said so
                self._recorder.checkpoint_removed(self._folder / one.name)
        for folder in sorted(self._folder.glob("step-*")):
            later = folder.name.removeprefix("step-")
            if not later.isdecimal() or int(later) <= step:
                continue
            self._set_aside(folder, step, msg("is later than what the run goes on from"))

    def leave_newest(self, step: int) -> Path | None:
        """Set the newest aside, from which the run found no way on, and give the one before; None without."""
        if len(self.kept) < 2:
            return None
        self._set_aside(
            self._folder / self.kept.pop().name,
            step,
            msg("led twice to where nothing can be learned"),
        )
        return self.newest

    def _set_aside(self, folder: Path, step: int, why: Message) -> None:
        aside = next(place for place in _names_aside(folder) if not place.exists())
        self._recorder.checkpoint_removed(folder)
        folder.rename(aside)
        text = msg("{folder} {why}, and is now {name}", folder=folder, why=why, name=aside.name)
        self._recorder.event("checkpoint_set_aside", text, step=step, data={"folder": str(aside)})

    def holds(self, step: int, validation: float | None, *, published: bool) -> bool:
        """Whether saving now would write what already lies there."""
        return _kept(step, validation, published) in self.kept

    async def save(
        self,
        step: int,
        *,
        policy_version: int,
        validation: float | None,
        position: dict[str, Any],
        published: bool,
        may_fail: bool,
    ) -> None:
        """Write the checkpoint of `step`, record it, then make room.

        `position` is what the loop needs to go on; the shelf adds its own content, so that a resumed run
        keeps the same limit. With `may_fail` a checkpoint that cannot be written is an event and the run
        goes on. Else the run holds its weights and tries again while `WAITS_S` last.

        Raises:
            CheckpointError, OSError: it could not be written, and the run needs it.
        """
        this = _kept(step, validation, published)
        kept = [*(one for one in self.kept if one.step != step), this]
        removed = to_remove(kept, self._limit, lower_is_better=self._lower_is_better)
        kept = [one for one in kept if one not in removed]
        position = {**position, "kept": [asdict(one) for one in kept]}
        target = self._folder / this.name

        async def write() -> Path:
            return await asyncio.to_thread(
                self._writer.write, target, step=step, policy_version=policy_version, position=position
            )

        folder = await self._written(write, step, removed, waits=() if may_fail else WAITS_S)
        if folder is None:
            return
        self.kept = kept
        self._recorder.checkpoint(
            step,
            folder,
            policy_version=policy_version,
            validation=validation,
            published=published,
            best=best_validated(kept, lower_is_better=self._lower_is_better) is this,
        )
        for old in removed:
            await asyncio.to_thread(self._remove, old, step)

    async def _written(
        self, write: Callable[[], Awaitable[Path]], step: int, removed: list[Kept], *, waits: Sequence[float]
    ) -> Path | None:
        """Write, if need be again: first without what is to go anyway, then after each of `waits`.

        None if there are no `waits` and it could not be written: the run goes on.
        """
        left = iter(waits)
        told = False
        while True:
            try:
                return await write()
            except (CheckpointError, OSError) as error:
                if not told:
                    self._tell_failure(step, error, waits)
                    told = True
                if await self._made_room(removed, step):
                    continue
                if not waits:
                    return None
                wait = next(left, None)
                if wait is None or await self._wait(wait):
                    raise

    def _tell_failure(self, step: int, error: Exception, waits: Sequence[float]) -> None:
        text = msg(
            "the checkpoint of step {step} could not be written: {error}",
            step=step,
            error=told_of(error),
        )
        if waits:
            minutes = sum(waits) // 60
            text += msg(
                "\n  the trained weights are held in memory; trying again for "
                "{minutes:.0f} minutes (Ctrl-C gives up)",
                minutes=minutes,
            )
        self._recorder.event("checkpoint_failed", text, step=step, data={"folder": str(self._folder)})

    async def _made_room(self, removed: list[Kept], step: int) -> bool:
        """Remove beforehand what would go after the write, but neither the newest nor the best so far: they
        are what remains if the write fails again."""
        spare = [one for one in self._spare() if one in removed]
        for old in spare:
            await asyncio.to_thread(self._remove, old, step)
            removed.remove(old)
            self.kept.remove(old)
        return bool(spare)

    def _spare(self) -> list[Kept]:
        return to_remove(self.kept, 1, lower_is_better=self._lower_is_better)

    def _remove(self, old: Kept, step: int) -> None:
        """Take the folder's name away first, from the record and on disk: no reader ever meets half of it."""
        folder = self._folder / old.name
        leaving = self._folder / f".leaving-{old.name}"
        best = best_validated(self.kept, lower_is_better=self._lower_is_better)
        data = {"folder": str(folder), "step": old.step, "best_step": best.step if best else None}
        self._recorder.checkpoint_removed(folder)
        try:
            folder.rename(leaving)
            shutil.rmtree(leaving)
        except OSError as error:
            self._recorder.event("checkpoint_not_removed", f"{folder}: {error}", step=step, data=data)
        else:
            text = msg(
                "removed the checkpoint of step {step}: save_total_limit is {limit}",
                step=old.step,
                limit=self._limit,
            )
            if best is not None:
                text += msg("; the best by validation, step {step}, stays", step=best.step)
            self._recorder.event("checkpoint_removed", text, step=step, data=data)


def _names_aside(folder: Path) -> Iterator[Path]:
    return (folder.with_name(f"left-{number}-{folder.name}") for number in count(1))


def _kept(step: int, validation: float | None, published: bool) -> Kept:
    return Kept(step=step, name=f"step-{step:06d}", validation=validation, published=published)


def best_below(folder: Path, kept: Sequence[Kept], *, lower_is_better: bool) -> Path | None:
    """Where the best by validation lies, of those that nobody has deleted."""
    there = [one for one in kept if (folder / one.name).is_dir()]
    best = best_validated(there, lower_is_better=lower_is_better)
    return folder / best.name if best else None


def kept_in(position: dict[str, Any]) -> list[Kept]:
    """What lay on the shelf when `position` was saved."""
    return [Kept(**one) for one in position["kept"]]
