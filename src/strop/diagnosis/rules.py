"""P1 to P9: the troubles of a run, each a function of what it has told so far.

A rule gives what it saw, or None. Thresholds are of two kinds: a metric's health range, which the registry
has by algorithm, and shapes of curves (a trend beyond its own noise, a level against the run's own
beginning).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from strop.diagnosis.answers import Answer
from strop.diagnosis.record import REWARD, Record
from strop.diagnosis.stats import middle_of, reversals, trend
from strop.locales import Message, msg
from strop.schema.finding import Curve, Witness

SPAN = 10
"""Steps that a rule looks back: what is planted shall be found within as many."""

CLIPPED, PROMPT_CLIPPED = "trajectory/response_length/clip_ratio", "trajectory/prompt_length/clip_ratio"
ENTROPY, LENGTH = "actor/entropy", "trajectory/response_length_non_aborted/mean"

_MUCH_CUT = 0.25
_GARBLED = 0.3
_SLOWER = 2.0
_GAINED = 0.02
"""Of validation or reward, from which on it counts as better."""

_PHASES = ("rollout", "old_log_prob", "update_actor", "update_critic", "validation", "checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a rule saw: a sentence with its numbers in both languages, and what shows it."""

    summary: Message
    curves: list[Curve] = field(default_factory=list[Curve])
    trajectories: list[Witness] = field(default_factory=list[Witness])
    numbers: dict[str, float] = field(default_factory=dict[str, float])


Rule = Callable[[Record], Seen | None]


def p1_not_converging(record: Record) -> Seen | None:
    """The reward stands still, not at its top, and the policy gets no signal or does not move."""
    rewards = record.curve(REWARD).last(SPAN)
    if len(rewards) < SPAN or abs(trend(rewards).t) > 2.0:
        return None
    no_signal = record.curve("group/frac_zero_std").last(SPAN)
    if is_solved(record):
        return None
    deaf = len(no_signal) == SPAN and fmean(no_signal) > 0.95
    drift = record.curve("actor/reference_kl_k3").last(3)
    gradients = record.curve("actor/grad_norm").last(SPAN)
    still = (bool(drift) and max(drift) < 1e-6) or (bool(gradients) and max(gradients) < 1e-5)
    if not deaf and not still:
        return None
    level = fmean(rewards)
    why = msg("no group has a signal") if deaf else msg("the policy does not move")
    return Seen(
        summary=msg(
            "the reward stands at {level:.3g} for {span} steps and {why}",
            level=level,
            span=SPAN,
            why=why,
        ),
        curves=[record.shown(REWARD), record.shown("group/frac_zero_std"), record.shown("actor/grad_norm")],
        numbers={"reward": level, "frac_zero_std": fmean(no_signal) if no_signal else math.nan},
    )


def p2_oscillating(record: Record) -> Seen | None:
    """The reward turns round again and again by much of what it can be, with spikes of gradient or
    clipping."""
    rewards = record.curve(REWARD).last(SPAN)
    highest, lowest = record.curve("critic/rewards/max").last(30), record.curve("critic/rewards/min").last(30)
    if len(rewards) < 6 or not highest or not lowest:
        return None
    scale = max(highest) - min(lowest)
    sampled = record.curve("trace/success_rate/agent/sum").last(1)
    noise = 0.5 * scale / math.sqrt(max(1.0, sampled[0])) if sampled else 0.0
    swings = reversals(rewards, max(0.2 * scale, 3.0 * noise)) if scale > 0 else 0
    if swings < 3:
        return None
    gradients = record.curve("actor/grad_norm")
    usual = middle_of(gradients.last(40))
    spikes = sum(value > 2.5 * usual for value in gradients.last(SPAN)) if usual > 0 else 0
    bounds = record.healthy("actor/pg_clipfrac")
    clipped = record.curve("actor/pg_clipfrac").last(SPAN)
    too_much = bool(bounds and bounds[1] is not None and clipped and fmean(clipped) > bounds[1])
    if spikes < 1 and not too_much and swings < 4:
        return None
    return Seen(
        summary=msg(
            "the reward turned round {swings} times in {num_rewards} steps by far more than its noise",
            swings=swings,
            num_rewards=len(rewards),
        ),
        curves=[record.shown(REWARD), record.shown("actor/grad_norm"), record.shown("actor/pg_clipfrac")],
        numbers={"swings": float(swings), "spikes": float(spikes), "scale": scale},
    )


def p3_kl_explosion(record: Record) -> Seen | None:
    """The drift within a step is beyond its range on three of four steps."""
    bounds = record.healthy("actor/ppo_kl")
    limit = bounds[1] if bounds and bounds[1] is not None else 0.1
    drift = record.curve("actor/ppo_kl").last(4)
    if sum(value > limit for value in drift) < 3:
        return None
    return Seen(
        summary=msg(
            "ppo_kl is {drift:.3g}; more than {limit:g} on 3 of 4 steps", drift=drift[-1], limit=limit
        ),
        curves=[record.shown("actor/ppo_kl"), record.shown("actor/pg_clipfrac")],
        numbers={"ppo_kl": drift[-1], "limit": limit},
    )


def p4_entropy_collapse(record: Record) -> Seen | None:
    """Entropy lost nearly all within ten steps, or is at nothing, and being certain is not being right."""
    entropy = record.curve(ENTROPY)
    newest = entropy.last(2)
    if len(entropy) < 4 or len(newest) < 2 or is_solved(record):
        return None
    since, before = max(entropy.points(SPAN + 2), key=lambda point: point[1])
    if is_certain_and_right(record, since):
        return None
    level = fmean(newest)
    bounds = record.healthy(ENTROPY)
    floor = bounds[0] if bounds and bounds[0] is not None else 0.01
    begun = max(entropy.first)
    if not (level < 0.2 * before or (level < floor and begun > 3 * floor)):
        return None
    return Seen(
        summary=msg(
            "entropy fell from {before:.3g} to {level:.3g} nats within {span} steps",
            before=before,
            level=level,
            span=SPAN,
        ),
        curves=[record.shown(ENTROPY), record.shown(REWARD)],
        trajectories=record.worst(lambda one: -one.num_tokens, lambda one: one.text[:80]),
        numbers={"entropy": level, "before": before, "at_first": begun},
    )


def p5_reward_hacking(record: Record) -> Seen | None:
    """Training gains, validation does not, and answers grow or one part of the reward takes the gain."""
    gain, told = training_gain(record, 2 * SPAN), validation_gain(record, 2 * SPAN)
    if gain is None or told is None or not lags(record):
        return None
    lengths = record.curve(LENGTH).last(SPAN)
    growth = trend(lengths)
    grows = bool(lengths) and growth.rises and growth.change > 0.25 * max(1.0, lengths[0])
    part = dominant_part(record)
    if not grows and part is None:
        return None
    how = msg("answers grow") if grows else msg("{part} takes the gain", part=part)
    names = [REWARD, LENGTH, *([f"trace/reward/{part}/avg"] if part else [])]
    return Seen(
        summary=msg(
            "the reward gained {gain:.3g}, validation {told:.3g}; {how}",
            gain=gain,
            told=told,
            how=how,
        ),
        curves=[*(record.shown(name) for name in names), validation_curve(record)],
        trajectories=record.worst(_reward_of, lambda one: one.text[:80]),
        numbers={"gain": gain, "validation_gain": told},
    )


def p6_validation_collapse(record: Record) -> Seen | None:
    """Validation is well below its best and going down, while training is above what it was at that best."""
    points = record.validation.points()
    if len(points) < 3:
        return None
    best_step, best = max(points, key=lambda point: point[1])
    values = [value for step, value in points if step >= best_step]
    span = best - min(value for _, value in points)
    noise = middle_of([abs(b - a) for (_, a), (_, b) in pairwise(points)])
    fall = max(0.05, 0.2 * span, 3.0 * noise)
    if len(values) < 3 or best - fmean(values[-2:]) < fall or max(values[-2:]) > best - 0.5 * fall:
        return None
    rewards = record.curve(REWARD)
    then, now = [v for s, v in rewards.points() if s <= best_step][-3:], rewards.last(3)
    if not then or not now or fmean(now) <= fmean(then):
        return None
    return Seen(
        summary=msg(
            "validation fell from {best:.3g} at step {best_step} to {values:.3g}; training rises",
            best=best,
            best_step=best_step,
            values=values[-1],
        ),
        curves=[validation_curve(record), record.shown(REWARD, 60)],
        numbers={"best": best, "best_step": float(best_step), "now": values[-1]},
    )


def p7_slower(record: Record) -> Seen | None:
    """Three steps in a row take twice as long as steps did before."""
    times = record.curve("timing/s/step").last(SPAN + 3)
    if len(times) < 7:
        return None
    usual, newest = middle_of(times[1:-3]), times[-3:]
    if min(newest) < _SLOWER * usual:
        return None
    phase, grew = _slowest_phase(record)
    return Seen(
        summary=msg(
            "a step takes {newest:.3g} s instead of {usual:.3g} s; most of it is {phase}",
            newest=newest[-1],
            usual=usual,
            phase=phase,
        ),
        curves=[record.shown("timing/s/step"), record.shown(f"timing/s/{phase}"), record.shown(LENGTH)],
        trajectories=record.worst(
            lambda one: float(one.num_tokens), lambda one: f"{one.num_tokens}: {one.text[:80]}"
        ),
        numbers={"usual_s": usual, "now_s": newest[-1], "phase_grew_s": grew},
    )


def p8_garbled(record: Record) -> Seen | None:
    """Much of the answers is not writing, on two steps in a row."""
    shares = record.curve("text/garbled").last(2)
    if len(shares) < 2 or min(shares) < _GARBLED:
        return None
    return Seen(
        summary=msg("{shares:.0%} of the answers are garbled", shares=shares[-1]),
        curves=[record.shown("text/garbled"), record.shown("actor/ppo_kl")],
        trajectories=record.worst(lambda one: float(one.garbled), lambda one: one.text[:80]),
        numbers={"share": shares[-1]},
    )


def p9_cut_off(record: Record) -> Seen | None:
    """A quarter or more of the answers or prompts reach their limit on three of four steps."""
    for name, what in ((CLIPPED, msg("answers")), (PROMPT_CLIPPED, msg("prompts"))):
        shares = record.curve(name).last(4)
        if sum(share > _MUCH_CUT for share in shares) >= 3:
            return Seen(
                summary=msg(
                    "{shares:.0%} of the {what} reach the limit",
                    shares=shares[-1],
                    what=what,
                ),
                curves=[record.shown(name), record.shown(LENGTH)],
                trajectories=record.worst(
                    lambda one: float(one.num_tokens), lambda one: f"{one.num_tokens}: {one.text[:80]}"
                ),
                numbers={"share": shares[-1]},
            )
    return None


def is_solved(record: Record) -> bool:
    """Whether groups are equal because they are right: what is certain then is no collapse. Where validation
    is measured it must have risen."""
    good, held_out = record.curve("group/frac_all_good").last(3), record.validation
    if not good or fmean(good) <= 0.5:
        return False
    return len(held_out) < 2 or fmean(held_out.last(2)) > held_out.first[0] + _GAINED


def is_certain_and_right(record: Record, since: int) -> bool:
    """Whether the policy got better while it grew certain: most groups are mixed or all right, and what is
    held out gained since that step; the training reward where that has yet to say."""
    mixed, good = record.curve("group/frac_mixed").last(3), record.curve("group/frac_all_good").last(3)
    if not mixed or fmean(mixed) + (fmean(good) if good else 0.0) < 0.5:
        return False
    held_out, rewards = record.validation.points(), record.curve(REWARD)
    before = [value for step, value in held_out if step <= since]
    if before and held_out[-1][0] > since:
        return held_out[-1][1] > before[-1] + _GAINED
    told = rewards.points()
    then = [value for step, value in told if step <= since] or [value for _, value in told[:1]]
    return bool(then) and fmean(rewards.last(3)) > then[-1] + _GAINED


def training_gain(record: Record, steps: int = SPAN) -> float | None:
    """How much the reward gained over the newest steps, where it rises beyond its noise."""
    rewards = record.curve(REWARD).last(steps)
    line = trend(rewards)
    return line.change if len(rewards) >= 5 and line.rises else None


def validation_gain(record: Record, steps: int = SPAN) -> float | None:
    """What validation gained meanwhile; None where it was not measured often enough to say."""
    points = _validation_points(record, steps)
    return trend([value for _, value in points]).change if len(points) >= 4 else None


def lags(record: Record) -> bool:
    """Whether validation surely gained less than half of what training did, over two spans."""
    points = _validation_points(record, 2 * SPAN)
    held_out = trend([value for _, value in points])
    rewards = trend(record.curve(REWARD).since(points[0][0] if points else record.step))
    if len(points) < 4 or not rewards.rises:
        return False
    return held_out.change + 2.0 * held_out.error < 0.5 * (rewards.change - rewards.error)


def _validation_points(record: Record, steps: int) -> list[tuple[int, float]]:
    """Those of the newest steps; where it is measured seldom, the last four."""
    points = record.validation.points()
    newest = [point for point in points if point[0] >= record.step - steps]
    return newest if len(newest) >= 4 else points[-4:]


def validation_curve(record: Record) -> Curve:
    names = [
        name
        for name in record.names("validation/")
        if name.endswith("/reward/mean@1") and name.count("/") == 3
    ]
    return record.shown(names[0], 60) if names else Curve(name="validation/data/reward/mean@1", points=[])


def part_gains(record: Record, steps: int = SPAN) -> dict[str, float]:
    """What each reward function's score gained over the newest steps, 0 within its noise."""
    gains: dict[str, float] = {}
    for name in record.names("trace/reward/"):
        if not name.endswith("/avg"):
            continue
        line = trend(record.curve(name).last(steps))
        gains[name.removeprefix("trace/reward/").removesuffix("/avg")] = (
            line.change if line.rises or line.falls else 0.0
        )
    return gains


def dominant_part(record: Record) -> str | None:
    """The one of several parts that took the gain while no other gained."""
    gains = part_gains(record)
    rising = [name for name, gain in gains.items() if gain > 0]
    return rising[0] if len(gains) > 1 and len(rising) == 1 else None


def _reward_of(one: Answer) -> float:
    return one.reward if one.reward is not None else -math.inf


def _slowest_phase(record: Record) -> tuple[str, float]:
    """The phase that grew most, and by how many seconds."""
    grew: dict[str, float] = {}
    for phase in _PHASES:
        times = record.curve(f"timing/s/{phase}").last(SPAN + 3)
        if len(times) >= 7:
            grew[phase] = fmean(times[-3:]) - middle_of(times[1:-3])
    return max(grew.items(), key=lambda item: item[1], default=("rollout", math.nan))


TROUBLES: dict[str, Rule] = {
    "P1": p1_not_converging,
    "P2": p2_oscillating,
    "P3": p3_kl_explosion,
    "P4": p4_entropy_collapse,
    "P5": p5_reward_hacking,
    "P6": p6_validation_collapse,
    "P7": p7_slower,
    "P8": p8_garbled,
    "P9": p9_cut_off,
}
