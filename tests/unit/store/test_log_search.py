from __future__ import annotations

import time

from strop.store.logs import level_of


def test_the_level_of_a_long_word_is_told_in_time_that_grows_with_it() -> None:
    begun = time.perf_counter()
    assert level_of("a" * 100_000) == "info"
    assert time.perf_counter() - begun < 2.0  # s; with a look from every letter to the end it is a minute


def test_a_warning_is_told_by_its_class() -> None:
    assert level_of("lib.py:3: UserWarning: old") == "warning"
    assert level_of("Warning: old") == "warning"
