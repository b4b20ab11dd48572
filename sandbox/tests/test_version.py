"""The version stands in two places of this distribution."""

import tomllib
from pathlib import Path

import strop_sandbox


def test_the_version_is_that_of_the_package() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert strop_sandbox.__version__ == pyproject["project"]["version"]
