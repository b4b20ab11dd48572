from __future__ import annotations

import pytest

from strop.console.words import pretty


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000])
def test_json_that_cannot_be_laid_out_stands_as_it_is(text: str) -> None:
    assert pretty(text) == text


def test_values_nested_too_deep_are_left_out() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    assert pretty(deep) == "[…]"
