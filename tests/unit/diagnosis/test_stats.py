import math

import pytest

from strop.diagnosis.answers import is_empty, is_garbled, last_answer, markup, repetition, top_word
from strop.diagnosis.stats import correlation, reversals, trend


def test_a_trend_is_the_line_of_least_squares_with_its_error():
    line = trend([0.0, 2.0, 1.0, 3.0])
    # By hand: slope 0.8, residuals -0.3 0.9 -0.9 0.3, so s^2 = 1.8 / 2 and the slope's error sqrt(0.9 / 5).
    assert line.change == pytest.approx(2.4)
    assert line.t == pytest.approx(0.8 / math.sqrt(0.18))
    assert line.error == pytest.approx(3 * math.sqrt(0.18))
    assert not line.rises


def test_a_straight_line_rises_for_sure_and_a_level_one_does_not():
    assert trend([1.0, 2.0, 3.0, 4.0]).rises
    assert trend([4.0, 3.0, 2.0, 1.0]).falls
    level = trend([2.0, 2.0, 2.0, 2.0])
    assert (level.rises, level.falls, level.change) == (False, False, 0.0)


def test_correlation_of_opposites_is_minus_one_and_of_a_constant_nothing():
    assert correlation([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1.0)
    assert correlation([1.0, 2.0, 3.0], [5.0, 5.0, 5.0]) == 0.0


def test_small_wobbles_are_no_reversals():
    assert reversals([0.0, 1.0, 0.9, 1.1, 1.0], 0.5) == 0
    assert reversals([0.0, 1.0, 0.0, 1.0, 0.0], 0.5) == 3


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        ("", True),
        ("  ...", True),
        ("I'm sorry, I cannot help with that.", True),
        ("抱歉，我无法回答。", True),
        ("42", False),
    ],
)
def test_silence_and_refusals_are_empty(text, empty):
    assert is_empty(text) is empty


def test_traits_of_a_text_are_counted_by_hand():
    assert repetition("one two three one two three one two three") == pytest.approx(1 - 3 / 7)
    assert top_word("great great great of of it") == pytest.approx(0.5)
    assert markup("**bold** text # end 😀") == pytest.approx(4 / 3)
    assert not is_garbled("naïve café 中文 and English")


def test_the_answer_is_what_the_last_assistant_message_says():
    parts = [{"type": "text", "text": "the"}, {"type": "text", "text": "end"}]
    said = [
        {"role": "assistant", "content": "first"},
        {"role": "user"},
        {"role": "assistant", "content": parts},
    ]
    assert last_answer(said) == "the end"
    assert last_answer([{"role": "user", "content": "x"}]) == ""
