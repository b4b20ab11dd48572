"""Sliding windows under a clock of the test's own."""

from __future__ import annotations

from strop.service.rate_limits import RateLimits


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_without_limits_every_call_may_come() -> None:
    limits = RateLimits(rpm=None, tpm=None)
    assert [limits.refusal() for _ in range(1000)] == [None] * 1000


def test_calls_beyond_the_limit_wait_until_the_first_is_a_minute_old() -> None:
    clock = Clock()
    limits = RateLimits(rpm=2, tpm=None, clock=clock)
    assert limits.refusal() is None
    clock.now += 20
    assert limits.refusal() is None
    clock.now += 10
    assert limits.refusal() == ("2 calls a minute", 30.0)
    clock.now += 29.5
    assert limits.refusal() == ("2 calls a minute", 0.5)
    clock.now += 0.5
    assert limits.refusal() is None
    assert limits.refusal() == ("2 calls a minute", 20.0)


def test_tokens_are_counted_when_answers_end() -> None:
    clock = Clock()
    limits = RateLimits(rpm=None, tpm=100, clock=clock)
    limits.used(60)
    assert limits.refusal() is None
    clock.now += 15
    limits.used(90)
    assert limits.refusal() == ("100 tokens a minute", 45.0)
    clock.now += 45
    assert limits.refusal() is None


def test_a_single_answer_beyond_the_limit_is_waited_out() -> None:
    clock = Clock()
    limits = RateLimits(rpm=None, tpm=100, clock=clock)
    limits.used(500)
    assert limits.refusal() == ("100 tokens a minute", 60.0)


def test_of_two_limits_the_longer_wait_is_told_and_a_refused_call_is_not_counted() -> None:
    clock = Clock()
    limits = RateLimits(rpm=1, tpm=10, clock=clock)
    assert limits.refusal() is None
    clock.now += 10
    limits.used(10)
    assert limits.refusal() == ("10 tokens a minute", 60.0)
    clock.now += 60
    assert limits.refusal() is None
    assert limits.refusal() == ("1 calls a minute", 60.0)
