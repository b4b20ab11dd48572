"""What a run has told so far -> what rules ask of it: curves, and the answers of the newest steps.

Only a window is kept, so that a run of any length costs the same.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean

from strop.diagnosis.answers import Answer, is_empty, is_garbled, last_answer, markup, repetition, top_word
from strop.diagnosis.stats import correlation
from strop.schema.finding import Curve, Witness
from strop.schema.trajectory import Group, Trajectory
from strop.tracing.metrics import metric

WINDOW = 60
"""Steps that are kept of each curve, besides its first ones."""

FIRST = 5
"""Steps at the beginning that later ones are compared with."""

_KEPT_STEPS = 3
_MAX_ANSWERS = 128

REWARD = "critic/rewards/mean"


class History:
    """One curve: its first points and its newest ones. NaN was not measured, as far as rules go."""

    def __init__(self) -> None:
        self._first: list[tuple[int, float]] = []
        self._newest: deque[tuple[int, float]] = deque(maxlen=WINDOW)

    def add(self, step: int, value: float) -> None:
        if not math.isfinite(value):
            return
        if len(self._first) < FIRST:
            self._first.append((step, value))
        self._newest.append((step, value))

    @property
    def first(self) -> list[float]:
        return [value for _, value in self._first]

    def last(self, number: int) -> list[float]:
        return [value for _, value in self.points(number)]

    def points(self, number: int = WINDOW) -> list[tuple[int, float]]:
        return list(self._newest)[-number:]

    def since(self, step: int) -> list[float]:
        return [value for at, value in self._newest if at >= step]

    def __len__(self) -> int:
        return len(self._newest)


class Record:
    """The run as the rules see it. `step` is the newest one reported."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm = algorithm
        self.step = 0
        self._curves: defaultdict[str, History] = defaultdict(History)
        self._answers: deque[tuple[int, list[Answer]]] = deque(maxlen=_KEPT_STEPS)

    def add_metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.step = max(self.step, step)
        for name, value in values.items():
            self._curves[name].add(step, value)

    def add_groups(self, step: int, groups: Iterable[Group]) -> None:
        """Training rollouts of a step; their texts become the curves below `text/`."""
        members = [one for group in groups for one in group.trajectories if one.turns or one.messages]
        answers = [_answer(one) for one in members[:_MAX_ANSWERS]]
        if answers:
            self._answers.append((step, answers))
            self.add_metrics(step, text_measures(answers))

    def curve(self, name: str) -> History:
        return self._curves[name] if name in self._curves else History()

    def names(self, start: str) -> list[str]:
        return sorted(name for name in self._curves if name.startswith(start))

    def shown(self, name: str, number: int = 20) -> Curve:
        return Curve(name=name, points=self.curve(name).points(number), healthy=self.healthy(name))

    def healthy(self, name: str) -> tuple[float | None, float | None] | None:
        """The range for this run's algorithm, as the registry has it."""
        if name.startswith("text/"):
            return None
        ranges = metric(name).healthy
        return ranges.get(self.algorithm, ranges.get("*"))

    def worst(
        self, key: Callable[[Answer], float], note: Callable[[Answer], str], number: int = 3
    ) -> list[Witness]:
        """The newest trajectories that show something most."""
        if not self._answers:
            return []
        step, answers = self._answers[-1]
        chosen = sorted(answers, key=key, reverse=True)[:number]
        return [
            Witness(rollout_id=one.rollout_id, step=step, reward=one.reward, note=note(one)) for one in chosen
        ]

    @property
    def validation(self) -> History:
        """Reward on held-out samples: the one data set's, or the first of several."""
        names = [name for name in self.names("validation/") if name.endswith("/reward/mean@1")]
        own = [name for name in names if name.count("/") == 3]
        return self.curve(own[0]) if own else History()


def text_measures(answers: Sequence[Answer]) -> dict[str, float]:
    """What the answers of one step have in common."""
    scored = [one for one in answers if one.reward is not None]
    rewards = [one.reward or 0.0 for one in scored]
    measures = {
        "text/empty": fmean(float(one.empty) for one in answers),
        "text/garbled": fmean(float(one.garbled) for one in answers),
        "text/same_in_group": _same_in_group(answers),
        "text/reward_of_empty": _mean([one.reward for one in scored if one.empty and one.reward is not None]),
        "text/reward_of_others": _mean(
            [one.reward for one in scored if not one.empty and one.reward is not None]
        ),
        "text/reward_by_length": correlation([float(one.num_tokens) for one in scored], rewards),
    }
    for name, of in (("repetition", _repetition), ("top_word", _top_word), ("markup", _markup)):
        measures[f"text/{name}"] = fmean(map(of, answers))
        measures[f"text/reward_by_{name}"] = correlation(list(map(of, scored)), rewards)
    parts = sorted({name for one in scored for name in one.parts})
    for one, other in combinations(parts[:6], 2):
        both = [(a.parts[one], a.parts[other]) for a in scored if one in a.parts and other in a.parts]
        measures[f"text/agreement/{one}|{other}"] = correlation([a for a, _ in both], [b for _, b in both])
    return measures


def _answer(one: Trajectory) -> Answer:
    text = last_answer(one.messages)
    return Answer(
        rollout_id=one.rollout_id,
        sample_id=one.sample_id,
        reward=one.reward,
        parts=one.reward_parts,
        num_tokens=one.num_sampled_tokens,
        text=text,
        empty=is_empty(text),
        repetition=repetition(text),
        top_word=top_word(text),
        markup=markup(text),
        garbled=is_garbled(text),
    )


def _same_in_group(answers: Sequence[Answer]) -> float:
    """Share of a sample's answers that are its most frequent one, over samples with two answers or more."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for one in answers:
        groups[one.sample_id].append(one.text)
    shares = [Counter(texts).most_common(1)[0][1] / len(texts) for texts in groups.values() if len(texts) > 1]
    return _mean(shares)


def _repetition(one: Answer) -> float:
    return one.repetition


def _top_word(one: Answer) -> float:
    return one.top_word


def _markup(one: Answer) -> float:
    return one.markup


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else math.nan
