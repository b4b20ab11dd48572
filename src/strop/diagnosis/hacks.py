"""Eight ways to exploit a reward, each as what it does to answers and what is paid for it.

All of them compare the run with its own beginning, and ask whether what grew is what earns. Where validation
gains as the training reward does, the growth is taken for learning and nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from strop.diagnosis.answers import Answer
from strop.diagnosis.record import REWARD, Record
from strop.diagnosis.rules import (
    ENTROPY,
    LENGTH,
    SPAN,
    Rule,
    Seen,
    is_certain_and_right,
    is_solved,
    lags,
    part_gains,
    training_gain,
    validation_curve,
    validation_gain,
)
from strop.diagnosis.stats import trend
from strop.locales import Message, msg
from strop.schema.finding import Witness

_PAID = 0.3
_WAIT = 30
"""Steps for which a run that validates seldom is taken to be learning."""

"""Correlation of a trait with the reward within a step from which on it is paid for."""


def length_explosion(record: Record) -> Seen | None:
    """Answers grow steadily by half or more, and the longer ones earn more."""
    lengths = record.curve(LENGTH)
    newest, line = lengths.last(SPAN), trend(lengths.last(SPAN))
    if len(newest) < 6 or not line.rises or line.change < 0.5 * max(1.0, newest[0]):
        return None
    if _paid(record, "length") < _PAID or _is_learning(record):
        return None
    return Seen(
        summary=msg(
            "answers grew from {newest:.0f} to {newest2:.0f} tokens, and length earns",
            newest=newest[0],
            newest2=newest[-1],
        ),
        curves=[record.shown(LENGTH), record.shown(REWARD), validation_curve(record)],
        trajectories=record.worst(
            lambda one: float(one.num_tokens), lambda one: f"{one.num_tokens}: {one.text[:80]}"
        ),
        numbers={"from": newest[0], "to": newest[-1], "paid": _paid(record, "length")},
    )


def keyword_stuffing(record: Record) -> Seen | None:
    """One word makes up more and more of the answers, and those with most of it earn most."""
    return _grown_trait(
        record,
        "top_word",
        least=0.25,
        factor=1.6,
        sentence=lambda now, before: msg(
            "one word makes up {now:.0%} of an answer, {before:.0%} at first", now=now, before=before
        ),
        of=lambda one: one.top_word,
    )


def format_marks(record: Record) -> Seen | None:
    """Marks of format multiply, and are paid for."""
    return _grown_trait(
        record,
        "markup",
        least=0.15,
        factor=2.0,
        sentence=lambda now, before: msg(
            "{now:.2f} marks of format a word, {before:.2f} at first", now=now, before=before
        ),
        of=lambda one: one.markup,
    )


def parroting(record: Record) -> Seen | None:
    """Answers repeat themselves more and more, and are paid for it."""
    return _grown_trait(
        record,
        "repetition",
        least=0.3,
        factor=2.0,
        sentence=lambda now, before: msg(
            "{now:.0%} of an answer was said in it before, {before:.0%} at first", now=now, before=before
        ),
        of=lambda one: one.repetition,
    )


def empty_answers(record: Record) -> Seen | None:
    """Empty and refusing answers spread and earn no less than others."""
    empty = record.curve("text/empty")
    newest, before = _level(record, "text/empty"), min(empty.first[:3], default=0.0)
    if len(empty) < 5 or newest < 0.3 or newest < 2.0 * before or _validates(record):
        return None
    theirs, others = (
        record.curve("text/reward_of_empty").last(3),
        record.curve("text/reward_of_others").last(3),
    )
    if theirs and others and fmean(theirs) < fmean(others) - 0.05:
        return None
    return Seen(
        summary=msg(
            "{newest:.0%} of the answers are empty or refuse, {before:.0%} at first, and earn no less",
            newest=newest,
            before=before,
        ),
        curves=[record.shown("text/empty"), record.shown(REWARD)],
        trajectories=record.worst(lambda one: float(one.empty), lambda one: one.text[:80] or "∅"),
        numbers={"share": newest, "at_first": before},
    )


def judge_talked_round(record: Record) -> Seen | None:
    """One part of the reward rises, another that agreed with it does not, and they agree no more."""
    gains = part_gains(record)
    for pair in record.names("text/agreement/"):
        one, other = pair.removeprefix("text/agreement/").split("|", 1)
        agreed, agrees = _beginning(record, pair), _level(record, pair)
        if agreed < 0.25 or agrees > 0.6 * agreed:
            continue
        for pleased, sober in ((one, other), (other, one)):
            if gains.get(pleased, 0.0) > 0.05 and gains.get(sober, 0.0) <= 0.25 * gains[pleased]:
                return _talked_round(record, pleased, sober, agreed, agrees)
    return None


def tools_abused(record: Record) -> Seen | None:
    """Tool calls a trajectory multiplied or vanished, and validation did not gain."""
    name = "trace/tool_call_count"
    calls = record.curve(name)
    before, now = _beginning(record, name), _level(record, name)
    if len(calls) < 6 or before < 0.25 or _is_learning(record):
        return None
    if not (now > max(2.5 * before, before + 1.0) or now < 0.3 * before):
        return None
    if not (
        trend(calls.last(SPAN)).rises or trend(calls.last(SPAN)).falls or abs(now - before) > 0.7 * before
    ):
        return None
    return Seen(
        summary=msg(
            "{now:.2g} tool calls a trajectory, {before:.2g} at first, and validation did not gain",
            now=now,
            before=before,
        ),
        curves=[record.shown(name), record.shown(REWARD), validation_curve(record)],
        trajectories=record.worst(lambda one: one.reward or 0.0, lambda one: one.text[:80]),
        numbers={"calls": now, "at_first": before},
    )


def one_template(record: Record) -> Seen | None:
    """Entropy is a fraction of what it was, and a group's answers are the same text."""
    entropy = record.curve(ENTROPY)
    same = _level(record, "text/same_in_group")
    before = min(record.curve("text/same_in_group").first[:3], default=1.0)
    if len(entropy) < 6 or is_solved(record) or _validates(record) or is_certain_and_right(record, since=1):
        return None
    level, begun = fmean(entropy.last(2)), max(entropy.first)
    if level > 0.3 * begun or same < 0.8 or same < before + 0.3:
        return None
    return Seen(
        summary=msg(
            "{same:.0%} of a group's answers are one text; entropy {level:.3g}, {begun:.3g} at first",
            same=same,
            level=level,
            begun=begun,
        ),
        curves=[record.shown("text/same_in_group"), record.shown(ENTROPY), record.shown(REWARD)],
        trajectories=record.worst(lambda one: one.reward or 0.0, lambda one: one.text[:80]),
        numbers={"same": same, "entropy": level, "at_first": begun},
    )


def _grown_trait(
    record: Record,
    trait: str,
    *,
    least: float,
    factor: float,
    sentence: Callable[[float, float], Message],
    of: Callable[[Answer], float],
) -> Seen | None:
    """A trait of the text that is well above what it was at first, still earns, and does not teach."""
    name = f"text/{trait}"
    before, now = _beginning(record, name), _level(record, name)
    if len(record.curve(name)) < 5 or now < least or now < factor * before or now < before + 0.5 * least:
        return None
    if _paid(record, trait) < _PAID or training_gain(record, 2 * SPAN) is None or _is_learning(record):
        return None

    def note(one: Answer) -> str:
        return f"{of(one):.2f}: {one.text[:80]}"

    witnesses: list[Witness] = record.worst(of, note)
    return Seen(
        summary=sentence(now, before),
        curves=[record.shown(name), record.shown(REWARD), validation_curve(record)],
        trajectories=witnesses,
        numbers={"now": now, "at_first": before, "paid": _paid(record, trait)},
    )


def _talked_round(record: Record, pleased: str, sober: str, agreed: float, agrees: float) -> Seen:
    return Seen(
        summary=msg(
            "{pleased} rises, {sober} does not; their agreement fell from {agreed:.2f} to {agrees:.2f}",
            pleased=pleased,
            sober=sober,
            agreed=agreed,
            agrees=agrees,
        ),
        curves=[record.shown(f"trace/reward/{name}/avg") for name in (pleased, sober)],
        trajectories=record.worst(
            lambda one: one.parts.get(pleased, 0.0) - one.parts.get(sober, 0.0),
            lambda one: (
                f"{pleased} {one.parts.get(pleased, 0.0):.2g}, {sober} {one.parts.get(sober, 0.0):.2g}"
            ),
        ),
        numbers={"agreed": agreed, "agrees": agrees},
    )


def _paid(record: Record, trait: str) -> float:
    """How much the trait earned within steps, at its most over two spans: a trait that all have earns no
    more."""
    values = record.curve(f"text/reward_by_{trait}").last(2 * SPAN)
    best = [fmean(values[i : i + 3]) for i in range(max(0, len(values) - 2))]
    return max(best, default=0.0)


def _is_learning(record: Record) -> bool:
    """Whether validation may well have gained half of what training did, or has yet to say. A run without
    validation cannot be told so."""
    if not len(record.validation):
        return False
    if validation_gain(record, 2 * SPAN) is None:
        return record.step < _WAIT
    return not lags(record)


def _validates(record: Record) -> bool:
    """Whether validation rises, or has yet to say."""
    if not len(record.validation):
        return False
    points = record.validation.last(7)
    if len(points) < 4:
        return record.step < _WAIT
    return trend(points).rises


def _level(record: Record, name: str) -> float:
    values = record.curve(name).last(2)
    return fmean(values) if values else 0.0


def _beginning(record: Record, name: str) -> float:
    values = record.curve(name).first[:2]
    return fmean(values) if values else 0.0


HACKS: dict[str, Rule] = {
    "hack_length": length_explosion,
    "hack_keyword": keyword_stuffing,
    "hack_format": format_marks,
    "hack_refusal": empty_answers,
    "hack_parroting": parroting,
    "hack_judge": judge_talked_round,
    "hack_tool": tools_abused,
    "hack_entropy": one_template,
}
