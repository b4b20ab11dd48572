"""The report of a jest run: read as the reporter writes it, and no report where a program wrote over it."""

from __future__ import annotations

import json

import pytest

from strop_sandbox.jest import cases_of

CASE = {
    "status": "failed",
    "fullName": "a b c",
    "title": "c",
    "ancestorTitles": ["a", "b"],
    "failureMessages": ["no"],
    "duration": 3,
}


def test_cases_are_told_in_the_reference_s_words() -> None:
    report = {"testResults": [{"testFilePath": "/tmp/box/main.test.js", "testResults": [CASE]}]}
    assert cases_of(json.dumps(report).encode()) == [
        {
            "passed": False,
            "full_name": "a b c",
            "file": "/tmp/box/main.test.js",
            "suite": "a > b",
            "test": "c",
            "failure_messages": ["no"],
        }
    ]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"testResults": [{"name": 1}]}', b"\xff"])
def test_what_is_no_report_has_no_cases(content: bytes) -> None:
    assert cases_of(content) is None
