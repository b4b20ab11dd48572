"""What the docstrings show is what happens: each module with an example runs it."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import strop_sandbox

SRC = Path(strop_sandbox.__file__).parents[1]
SHOWN = sorted(
    ".".join(file.relative_to(SRC).with_suffix("").parts)
    for file in SRC.rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", SHOWN)
def test_the_examples_in_a_docstring_hold(name: str) -> None:
    found = doctest.testmod(import_module(name))
    assert found.attempted > 0
    assert found.failed == 0
