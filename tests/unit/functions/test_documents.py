"""What the documentation of rewards says is so."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import strop.functions
from strop.functions.rewards_doc import presets_of_page, render

PAGE = Path(__file__).parents[3] / "docs" / "rewards.md"
MODULES = [
    one.name for one in pkgutil.walk_packages(strop.functions.__path__, "strop.functions.") if not one.ispkg
]


def test_the_table_of_presets_is_that_of_the_code():
    assert presets_of_page(PAGE) == render(), "run: python -m strop.functions.rewards_doc docs/rewards.md"


def test_the_examples_of_the_page_give_what_it_says():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert (failed, tried > 20) == (0, True)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_code_give_what_they_say(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
