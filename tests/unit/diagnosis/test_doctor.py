"""Faults planted in runs of a small policy that really learns are found; a healthy run is left alone."""

from __future__ import annotations

import math

import pytest

from fakes.planted import PLANTED, onset
from fakes.tiny_world import World
from strop.diagnosis.doctor import ALL_RULES, QUIET_STEPS, Doctor
from strop.diagnosis.record import REWARD
from strop.diagnosis.texts import RULES
from strop.tracing.metrics import metric


def examined(world: World, steps: int):
    """The run's curves, its doctor, and the step at which each rule first held."""
    doctor, told, first = Doctor("ft-1", world.algorithm), [], {}
    for step, values, groups in world.steps(steps):
        doctor.trajectories(step, groups)
        doctor.metrics(step, values)
        for finding in doctor.look(step):
            first.setdefault(finding.rule, step)
        told.append(values)
    return told, doctor, first


@pytest.mark.parametrize("rule", PLANTED)
def test_a_planted_fault_is_found_within_ten_steps(rule):
    make, what = PLANTED[rule]
    told, _, first = examined(make(0), 45)
    assert rule in first, first
    assert first[rule] <= onset(what, told) + 10


def test_a_run_that_learns_is_left_alone():
    told, _, first = examined(World(seed=0), 40)
    assert told[-1][REWARD] > told[0][REWARD] + 0.2
    assert first == {}


def test_every_rule_has_its_words_and_every_words_their_rule():
    assert set(ALL_RULES) == set(RULES)
    for text in RULES.values():
        for words in (text.title, text.cause, text.advice):
            assert words.render("zh") != words


def curve(doctor, name, values, first_step=1):
    """Tell a curve alone and give what changed at its last step."""
    changed = []
    for step, value in enumerate(values, first_step):
        doctor.metrics(step, {name: value})
        changed = doctor.look(step)
    return changed


def test_a_finding_names_its_numbers_and_carries_the_curve_with_its_health_range():
    (finding,) = curve(Doctor("ft-1", "grpo"), "actor/ppo_kl", [0.01, 0.3, 0.4, 0.5])
    assert (finding.rule, finding.first_step, finding.last_step, finding.ended_step) == ("P3", 4, 4, None)
    assert "0.5" in finding.summary.en
    assert "0.5" in finding.summary.zh
    shown = finding.evidence.curves[0]
    assert shown.name == "actor/ppo_kl"
    assert shown.points[-1] == (4, 0.5)
    assert shown.healthy == (None, 0.1)
    assert finding.evidence.numbers == {"ppo_kl": 0.5, "limit": 0.1}


def test_a_finding_goes_on_flickers_and_ends_as_one():
    doctor = Doctor("ft-1", "grpo")
    name = "trajectory/response_length/clip_ratio"
    (begun,) = curve(doctor, name, [0.5, 0.5, 0.5])
    (later,) = curve(doctor, name, [0.5], first_step=4)
    assert (begun.first_step, later.first_step, later.last_step) == (3, 3, 4)
    healthy = [0.0] * (QUIET_STEPS + 2)
    changes = []
    for step, value in enumerate(healthy, 5):
        doctor.metrics(step, {name: value})
        changes += doctor.look(step)
    assert [change.ended_step for change in changes if change.ended_step] == [changes[-2].last_step + 1]
    assert doctor.open_findings == []


def test_the_clip_fraction_of_gspo_is_not_judged_by_that_of_grpo():
    assert metric("actor/pg_clipfrac").healthy.get("grpo") == (0.0, 0.05)
    assert "gspo" not in metric("actor/pg_clipfrac").healthy

    def swinging(algorithm):
        doctor = Doctor("ft-1", algorithm)
        found = {}
        for step in range(1, 9):
            values = {
                REWARD: 0.5 + 0.3 * (-1) ** (step // 2),
                "critic/rewards/max": 1.0,
                "critic/rewards/min": 0.0,
                "actor/grad_norm": 1.0,
                "actor/pg_clipfrac": 0.4,
            }
            doctor.metrics(step, values)
            found = {finding.rule for finding in doctor.look(step)}
        return found

    assert swinging("grpo") == {"P2"}
    assert swinging("gspo") == set()


def test_what_was_not_measured_counts_for_nothing():
    doctor = Doctor("ft-1", "grpo")
    assert curve(doctor, "actor/ppo_kl", [math.nan] * 6) == []


def test_a_long_run_costs_no_more_memory_than_a_short_one():
    doctor = Doctor("ft-1", "grpo")
    for step in range(1, 1001):
        doctor.metrics(step, {REWARD: 0.5})
    assert len(doctor._record.curve(REWARD)) == 60
