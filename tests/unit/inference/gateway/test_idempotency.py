"""Which repeated call gets an earlier answer, and which is sampled."""

from __future__ import annotations

import pytest

from strop.inference.chat.errors import RequestRefused
from strop.inference.gateway.idempotency import IdempotencyCache, Identity


def identity(body: bytes = b"body", *, retries: str = "0", key: str | None = None) -> Identity:
    headers = {"x-stainless-retry-count": retries}
    if key is not None:
        headers["idempotency-key"] = key
    return Identity.of(headers, body)


def test_a_marked_repetition_gets_the_answer_of_the_first_try() -> None:
    replays = IdempotencyCache()
    assert replays.reply_to(identity()) is None
    replays.answered(identity(), {"id": "one"})
    assert replays.reply_to(identity(retries="1")) == {"id": "one"}
    assert replays.reply_to(identity(retries="2")) == {"id": "one"}


def test_an_equal_call_that_is_no_repetition_is_sampled() -> None:
    replays = IdempotencyCache()
    replays.answered(identity(), {"id": "one"})
    assert replays.reply_to(identity()) is None


def test_a_repetition_with_another_body_is_sampled() -> None:
    replays = IdempotencyCache()
    replays.answered(identity(), {"id": "one"})
    assert replays.reply_to(identity(b"other", retries="1")) is None


def test_the_repetition_of_a_failed_call_does_not_get_the_answer_of_an_equal_one() -> None:
    replays = IdempotencyCache()
    replays.answered(identity(), {"id": "one"})
    replays.failed(identity())
    assert replays.reply_to(identity(retries="1")) is None
    assert replays.reply_to(identity(retries="1")) == {"id": "one"}


def test_an_idempotency_key_alone_marks_a_repetition() -> None:
    replays = IdempotencyCache()
    assert replays.reply_to(identity(key="k")) is None
    replays.answered(identity(key="k"), {"id": "one"})
    assert replays.reply_to(identity(key="k")) == {"id": "one"}
    assert replays.reply_to(identity(key="other")) is None


def test_an_idempotency_key_with_another_body_is_refused() -> None:
    replays = IdempotencyCache()
    replays.reply_to(identity(key="k"))
    with pytest.raises(RequestRefused, match="used before with another body") as refused:
        replays.reply_to(identity(b"other", key="k"))
    assert refused.value.code == "idempotency_key_reused"


def test_a_retry_header_that_is_no_number_marks_nothing() -> None:
    assert not identity(retries="x").may_repeat
