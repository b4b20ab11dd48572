"""When an output is the expected one: the reference's rules, case by case, and the stricter ones."""

import pytest

from strop_sandbox.comparison import Comparison


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("1\n2\n", "1\n2", True),
        ("1\r\n2\r\n", "1\n2\n", True),
        ("  1  \n 2", "1\n2", True),
        ("Yes", "YES", True),
        ("1 2", "1  2", False),
        ("1\n\n2", "1\n2", False),
        ("0.3333333", "0.33333331", True),
        ("0.33", "0.34", False),
        ("1e3", "1000", True),
        ("nan", "nan", True),
        ("nan", "1", False),
        ("inf", "1e400", False),
        ("0", "0.00000000000000000001", True),
        ("1.0 2.0", "1 2", False),
        ("", "", True),
        ("", "1", False),
        ("1_0", "10", True),
    ],
)
def test_outputs_agree_by_the_reference_s_rules(output: str, expected: str, same: bool) -> None:
    assert Comparison().agree(output, expected) is same


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("1 \n\n", "1", True),
        (" 1", "1", False),
        ("1.0", "1", False),
        ("yes", "YES", False),
        ("a\nb", "a\nb\n", True),
    ],
)
def test_strict_forgives_only_white_space_at_ends(output: str, expected: str, same: bool) -> None:
    assert Comparison(strict=True).agree(output, expected) is same


def test_the_tolerance_is_relative_to_what_is_expected() -> None:
    loose = Comparison(tolerance=0.1)
    assert loose.agree("109", "100")
    assert not loose.agree("111", "100")
