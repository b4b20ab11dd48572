"""What is drawn of the methods' curves, on numbers worked by hand."""

import doctest

from bench import curves
from bench.curves import Curve, picture

LEARNED = [(1, 0.25), (2, 0.5), (4, 1.0)]


def curve(method: str) -> Curve:
    watched = {curves.SAMPLED: LEARNED}
    return Curve(method=method, settings={}, validation=[(0, 0.0), (4, 0.75)], watched=watched, seconds=1.0)


def test_the_examples_hold() -> None:
    assert doctest.testmod(curves).failed == 0


def test_steps_go_right_and_rewards_up_in_one_panel_a_method() -> None:
    drawn = picture([curve(f"m{number}") for number in range(5)])
    # A panel is 150 wide and 80 high, 36 apart: the first at (36, 36), the fifth below it at (36, 152).
    assert '<polyline points="73.5,96.0 111.0,76.0 186.0,36.0"' in drawn
    assert '<polyline points="73.5,212.0 111.0,192.0 186.0,152.0"' in drawn
    assert '<circle cx="36.0" cy="116.0"' in drawn
    assert '<circle cx="186.0" cy="56.0"' in drawn
    assert drawn.count("<polyline") == 5
