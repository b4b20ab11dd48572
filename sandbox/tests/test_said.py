"""What a notebook's driver wrote down: cells can write there, too, so that it may be anything."""

from __future__ import annotations

import json

import pytest

from strop_sandbox.jupyter import _said  # pyright: ignore[reportPrivateUsage]

CELL = {"stdout": "1", "stderr": "", "display": [{"text/plain": "1"}], "error": []}


def test_cells_are_taken_as_the_driver_writes_them() -> None:
    said = _said(json.dumps({"cells": [CELL], "late": False}).encode())
    assert said is not None
    assert (said.cells[0].model_dump(), said.late) == (CELL, False)


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"no json",
        b"[]",
        b"{}",
        b"1",
        b'{"cells": [{}], "late": false}',
        b'{"cells": 1, "late": false}',
        b'{"cells": [], "late": []}',
        b"\xff",
        json.dumps({"cells": [CELL | {"display": "x"}], "late": False}).encode(),
        b'{"cells": [{"stdout": "", "stderr": "", "error": [], "display": [{"a": '
        + b"[" * 900
        + b"]" * 900
        + b'}]}], "late": false}',
    ],
)
def test_rubbish_is_no_word_of_the_driver(content: bytes | None) -> None:
    assert _said(content) is None
