"""What the bench says about measured seconds, on numbers worked by hand."""

import doctest

import pytest

from bench import figures
from bench.workload import vowel_share


def test_rounds_alternate_and_every_second_one_runs_backwards() -> None:
    order: list[str] = []

    def run(name: str) -> int:
        order.append(name)
        return len(order)

    assert figures.alternate(["a", "b"], run, rounds=3) == {"a": [1, 4, 5], "b": [2, 3, 6]}
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_a_ratio_is_taken_within_a_round_so_that_a_slow_minute_hits_both() -> None:
    assert figures.round_ratios([30.0, 60.0], [10.0, 20.0]) == [3.0, 3.0]
    with pytest.raises(ValueError, match="rounds differ: 2 and 1"):
        figures.round_ratios([1.0, 2.0], [1.0])


def test_the_spread_gives_median_and_range() -> None:
    assert figures.spread([4.0, 1.0, 2.0, 9.0]) == "3.0 (1.0-9.0)"
    assert figures.spread([1.25], 2) == "1.25"


def test_a_verdict_says_by_how_much_a_target_was_missed() -> None:
    assert figures.verdict("memory", 1.2, 1.0, at_least=False) == (
        "* memory: 1.20, target at most 1: **missed** by a factor of 1.20"
    )
    assert figures.verdict("step", 3.1, 3.0, unit="x") == "* step: 3.10x, target at least 3x: met"


def test_a_table_refuses_a_row_of_another_length() -> None:
    assert figures.table(["", "s"], [["TRL", "9"]]) == "|  | s |\n|---|--:|\n| TRL | 9 |"
    with pytest.raises(ValueError, match="different length"):
        figures.table(["", "s"], [["TRL"]])


def test_the_doctests_of_the_figures_hold() -> None:
    assert doctest.testmod(figures).failed == 0


def test_the_reward_is_the_share_of_vowels() -> None:
    assert vowel_share("Abed") == 0.5
    assert vowel_share("") == 0.0
