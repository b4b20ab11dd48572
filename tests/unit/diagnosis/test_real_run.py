"""The curves of a real run that went well, the calculator of `strop demo`: no rule may blame it.

`calculator_run.csv` has every curve that rules read, a row each, steps 0 to 18; `text/` is what the doctor
made of the run's own answers. Validation went from 0.03 to 0.98 while entropy fell from 1.0 to 0.04.
"""

from __future__ import annotations

import csv
from pathlib import Path

from strop.diagnosis.doctor import Doctor
from strop.diagnosis.record import REWARD

VALIDATION = "validation/data/reward/mean@1"
LAST = 18


def curves() -> dict[str, dict[int, float]]:
    with (Path(__file__).parent / "calculator_run.csv").open() as file:
        header, *rows = csv.reader(file)
    steps = [int(step) for step in header[1:]]
    return {name: {s: float(v) for s, v in zip(steps, values, strict=True) if v} for name, *values in rows}


def blamed(told: dict[str, dict[int, float]]) -> dict[str, int]:
    """Each rule that held, and the step at which it first did."""
    doctor, first = Doctor("ft-1", "grpo"), {}
    for step in range(LAST + 1):
        doctor.metrics(step, {name: curve[step] for name, curve in told.items() if step in curve})
        for finding in doctor.look(step) if step else ():
            first.setdefault(finding.rule, step)
    return first


def equal_groups(told: dict[str, dict[int, float]]) -> dict[str, dict[int, float]]:
    """The same, but from step 3 on all rollouts of a sample are equal, and wrong."""
    steps = range(3, LAST + 1)
    for name, value in (("frac_mixed", 0.0), ("frac_all_good", 0.0), ("frac_all_bad", 1.0)):
        told[f"group/{name}"] |= dict.fromkeys(steps, value)
    return told


def test_the_run_became_certain_and_right():
    told = curves()
    assert told["actor/entropy"][1] > 20 * told["actor/entropy"][16]
    assert (told[VALIDATION][0], told[VALIDATION][LAST]) == (0.03125, 0.9844)
    assert (told[REWARD][1], told[REWARD][LAST]) == (0.04688, 1.0)


def test_a_run_that_becomes_certain_because_it_is_right_is_not_blamed():
    assert blamed(curves()) == {}


def test_nor_is_it_where_nothing_is_held_out():
    told = curves()
    del told[VALIDATION]
    assert blamed(told) == {}


def test_nor_is_it_where_what_is_held_out_was_first_measured_after_it():
    told = curves()
    del told[VALIDATION][0]
    assert min(told[VALIDATION]) == 6
    assert blamed(told) == {}


def test_certain_without_a_gain_on_what_is_held_out_is_a_collapse():
    told = curves()
    told[VALIDATION] = dict.fromkeys(range(LAST + 1), told[VALIDATION][0])
    assert blamed(told)["P4"] == 5


def test_certain_without_a_gain_of_reward_is_a_collapse_too():
    told = curves()
    del told[VALIDATION]
    told[REWARD] = dict.fromkeys(range(1, LAST + 1), told[REWARD][1])
    for name, value in (("frac_mixed", 1.0), ("frac_all_good", 0.0)):
        told[f"group/{name}"] = dict.fromkeys(range(1, LAST + 1), value)
    assert blamed(told)["P4"] == 5


def test_groups_that_are_equal_and_wrong_are_a_collapse_whatever_was_gained():
    assert blamed(equal_groups(curves()))["P4"] == 5
