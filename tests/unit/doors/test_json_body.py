"""Bodies that mean one thing, and such that do not."""

from __future__ import annotations

import json
import time

import pytest

from strop.doors.json_body import MAX_DEPTH, MAX_VALUES, read_json
from strop.errors import RequestError


def test_what_is_json_comes_through_as_it_is() -> None:
    value = {"a": [1, 2.5, None, True, "数据\n"], "b": {"a": {}}}
    assert read_json(json.dumps(value).encode()) == value


def test_as_deep_as_may_be_is_read_and_one_more_is_refused_with_its_place() -> None:
    deepest = b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH
    assert read_json(deepest)
    with pytest.raises(RequestError, match=r"^(\[0\]){64}.*: more than this server accepts: nested"):
        read_json(b"[" + deepest + b"]")


def test_as_many_values_as_may_be_are_read_and_one_more_is_refused() -> None:
    most = [0] * (MAX_VALUES - 1)
    assert read_json(json.dumps(most).encode()) == most
    with pytest.raises(RequestError, match=f"{MAX_VALUES} values"):
        read_json(json.dumps([*most, 0]).encode())


def test_a_name_that_stands_twice_among_a_million_is_found_at_once() -> None:
    body = ("{" + ",".join(f'"k{n}":1' for n in range(200_000)) + ',"k0":1}').encode()
    began = time.process_time()
    with pytest.raises(RequestError, match="'k0' is used twice"):
        read_json(body)
    assert time.process_time() - began < 5  # a list searched for each name would take an hour


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"a": {"b\\u0000": 1}}', r"a\.b\\x00: contains a NUL"),
        (b'[["\\udc00"]]', r"\[0\]\[0\]: half a character at 0"),
        (b'"\\u0000"', "the body: contains a NUL"),
        (b"[1e400]", r"\[0\]: a number too large"),
    ],
)
def test_what_no_file_process_or_database_holds_is_refused_with_its_place(body: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        read_json(body)
