"""`strop init`: what it makes passes its own tests and the checks of a run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strop.cli.commands import app
from strop.cli.init import TEMPLATES, template_names
from strop.locales import rendered

EXAMPLES = Path(__file__).parents[2] / "examples"


def strop(folder: Path, *words: str, language: str = "en") -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "strop.cli", *words, language=language)


def python(folder: Path, *words: str, language: str = "en") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "STROP_LANG": language, "STROP_HOME": str(folder / "home"), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )


def test_templates_are_the_examples() -> None:
    """Linked, not copied: what one shows, the other makes."""
    assert template_names() == ["ark-math", "calculator", "judge", "langgraph-mcp"]
    with as_file(files("strop").joinpath("templates")) as folder:
        assert {path.resolve().parent for path in folder.iterdir()} == {EXAMPLES}


@pytest.mark.parametrize("template", template_names())
def test_a_project_passes_its_own_tests_and_a_dry_run(template: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    made = CliRunner().invoke(app, ["init", str(project), "--template", template])
    assert made.exit_code == 0, made.output
    assert str(project / "job.yaml") in made.output
    tested = python(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert " passed" in tested.stdout
    checked = CliRunner().invoke(app, ["run", str(project / "job.yaml"), "--dry-run"])
    assert checked.exit_code == 0, checked.output


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "mine.txt").write_text("mine")
    done = strop(tmp_path, "init", "project")
    assert done.returncode == 2
    assert "project exists and is not an empty folder" in done.stderr
    assert [path.name for path in (tmp_path / "project").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_help_names_every_template_with_what_it_is(language: str, tmp_path: Path) -> None:
    assert sorted(TEMPLATES) == template_names()
    done = strop(tmp_path, "init", "--help", language=language)
    shown = re.sub(r"[\s│]+", "", done.stdout)
    for name, words in TEMPLATES.items():
        assert f"{name},{rendered(words, language)}".replace(" ", "") in shown


def test_a_template_that_is_not_there_is_told_with_the_nearest(tmp_path: Path) -> None:
    done = strop(tmp_path, "init", "project", "--template", "calculater")
    assert done.returncode == 2
    assert "did you mean 'calculator'?" in done.stderr
