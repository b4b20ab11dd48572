from __future__ import annotations

from pathlib import Path

import pytest

from strop.console.words import pretty, shortened


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000])
def test_json_that_cannot_be_laid_out_stands_as_it_is(text: str) -> None:
    assert pretty(text) == text


def test_values_nested_too_deep_are_left_out() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    assert pretty(deep) == "[…]"


def test_a_home_may_be_the_user_s_own_and_the_user_may_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shortened(Path.home() / "models", home=Path.home()) == "$STROP_HOME/models"
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert shortened("/srv/strop/models", home=Path("/srv/strop")) == "$STROP_HOME/models"
