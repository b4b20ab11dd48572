"""`strop init`: a project that runs, with tests that pass, from a template."""

from __future__ import annotations

import difflib
import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from strop.cli.next_steps import program
from strop.cli.text import t, told
from strop.errors import ConfigError, Problem
from strop.locales import msg


def template_names() -> list[str]:
    """Templates that come with Strop: the projects of examples/, linked."""
    return sorted(one.name for one in files("strop").joinpath("templates").iterdir() if one.is_dir())


TEMPLATES = {
    "calculator": msg("an agent with a tool, over two turns"),
    "langgraph-mcp": msg("an agent on LangGraph with MCP tools"),
    "ark-math": msg("rewards alone, in Ark's names; no agent"),
    "judge": msg("a reward that asks a model to grade"),
}
"""What each begins with; the order is that of the help."""


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help=t("Where it is made; new or empty."))],
    template: Annotated[
        str,
        typer.Option(
            "--template",
            metavar="NAME",
            help=t("What it begins with: ")
            + t("; ").join(f"{name}, {told(text)}" for name, text in TEMPLATES.items())
            + t("."),
        ),
    ] = "calculator",
) -> None:
    names = template_names()
    if template not in names:
        near = difflib.get_close_matches(template, names, n=1)
        fix = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(names)}"
        raise ConfigError(
            "strop init",
            [Problem(place="--template", message=msg("no template {value!r}", value=template), fix=fix)],
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        text = f"{folder} exists and is not an empty folder"
        raise ConfigError("strop init", [Problem(place="FOLDER", message=text, fix=msg("name a new one"))])
    with as_file(files("strop").joinpath("templates", template)) as source:
        shutil.copytree(
            source,
            folder,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__", "*.pyc", ".*_cache"),
        )
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            print(path)
    print(
        t("next:"),
        f"  cd {folder}",
        "  python -m pytest",
        f"  {program()} run job.yaml --dry-run",
        sep="\n",
    )
