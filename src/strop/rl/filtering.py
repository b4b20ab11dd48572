"""Scored groups -> those that teach something, and how many more a step needs: DAPO's dynamic sampling.

A group of equal rewards has no advantage. With `filter_groups` a step leaves such groups out and samples
further prompts, until it has a full batch of groups or `max_num_gen_batches` rounds are spent; then it trains
on what it found. `rl.loop` does the sampling; this file only judges. Pure Python.

Source:
    DAPO, arXiv:2503.14476, section 3.2. Ours: rewards are judged before any shaping, each round asks for the
    missing prompts only, and a short batch is trained on with its own normalisers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from strop.config.job import HyperParameters
from strop.errors import TrainingError
from strop.locales import Message, msg
from strop.rl.advantage import rewards_are_equal
from strop.schema.trajectory import Group


class NothingToTrain(TrainingError):
    """No group of a step differs in its rewards; the weights are untouched, so they can still be saved."""


def teaches(group: Group) -> bool:
    """Whether two survivors of the group got different scores."""
    scores = [score for one in group.survivors if (score := one.score) is not None]
    return len(scores) >= 2 and not rewards_are_equal(scores)


@dataclass(slots=True)
class GroupFilter:
    """What one step has sampled so far.

    `kept` is what it trains on, at most `batch_size` groups and in the order they were drawn; `num_equal`
    counts the groups left out because their rewards are equal.
    """

    batch_size: int
    filters: bool
    max_rounds: int
    rounds: int = 0
    sampled: list[Group] = field(default_factory=list[Group])
    kept: list[Group] = field(default_factory=list[Group])
    num_equal: int = 0

    def add(self, groups: Iterable[Group]) -> None:
        """Take in one round's groups, failed rollouts and all."""
        self.rounds += 1
        for group in groups:
            self.sampled.append(group)
            if not self.filters or teaches(group):
                self.kept.append(group)
            elif len(group.survivors) >= 2:
                self.num_equal += 1

    def kept_of(self, sampled: Iterable[Group]) -> tuple[Group, ...]:
        """Those of `sampled`, shaped since or not, that the step trains on."""
        ids = {group.group_id for group in self.kept}
        return tuple(group for group in sampled if group.group_id in ids)

    @property
    def missing(self) -> int:
        """Prompts that the next round asks for; 0 when the step has enough or no round is left."""
        if not self.filters or self.rounds >= self.max_rounds:
            return 0
        return self.batch_size - len(self.kept)

    def metrics(self) -> dict[str, float]:
        """How hard the step had to look; nothing where it does not look."""
        if not self.filters:
            return {}
        return {
            "group/refill_rounds": float(self.rounds - 1),
            "group/filtered": float(self.num_equal),
            "group/trained": float(len(self.kept)),
        }


def group_filter(hyper: HyperParameters) -> GroupFilter:
    """An empty one for the next step."""
    return GroupFilter(
        batch_size=hyper.batch_size, filters=hyper.filters_groups, max_rounds=hyper.max_num_gen_batches
    )


def shortage(found: GroupFilter, *, step: int, data_is_through: bool) -> Message | None:
    """A sentence where a step trains on fewer groups than a batch.

    Raises:
        NothingToTrain: there is not one, and more data would not have helped.
    """
    if not found.filters or len(found.kept) >= found.batch_size:
        return None
    tried = msg(
        "{num_equal} of {num_sampled} groups had equal rewards in {rounds} rounds",
        num_equal=found.num_equal,
        num_sampled=len(found.sampled),
        rounds=found.rounds,
    )
    if found.kept or data_is_through:
        why = msg("the data are through") if data_is_through else msg("max_num_gen_batches is reached")
        return msg(
            "trains on {num_kept} of {batch_size} groups: {tried}, and {why}",
            num_kept=len(found.kept),
            batch_size=found.batch_size,
            tried=tried,
            why=why,
        )
    raise NothingToTrain(
        msg(
            "step {step}: nothing to learn from: {tried} (max_num_gen_batches {max_rounds})",
            step=step,
            tried=tried,
            max_rounds=found.max_rounds,
        ),
        fix=msg(
            "look at the trajectories of this step: the rows may all be too easy or too "
            "hard, or the reward constant; raise n_rollouts or max_num_gen_batches, or "
            "set filter_groups: false"
        ),
    )
