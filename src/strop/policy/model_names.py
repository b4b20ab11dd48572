"""A model's name -> what it can stand for, told without torch: for checks before any work is spent.

`policy.models` fetches and loads what a name stands for; here only names and folders are looked at.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

from strop.schema.config import MODEL_NAME
from strop.store.home import home

BUNDLED = "smollm2-135m"
ALIASES = {BUNDLED, "smollm2-135m-instruct", "huggingfacetb/smollm2-135m-instruct"}
PUBLISHED_NAME = re.compile(MODEL_NAME)
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def published_folder(name: str) -> Path | None:
    """Where a published model of that name lies."""
    if not PUBLISHED_NAME.fullmatch(name):
        return None
    folder = home() / "models" / name
    return folder if (folder / "config.json").is_file() else None


def complaint(name: str) -> tuple[str, str] | None:
    """What is wrong with a name that stands for no model, and the fix; None where it may stand for one.

    Whether the hub has an id is known only when it is asked.
    """
    folder = os.path.expanduser(name)  # not Path: that raises for a name too long to be one
    if os.path.isfile(os.path.join(folder, "config.json")) or published_folder(name) is not None:
        return None
    if name.lower() in ALIASES:
        return None
    if os.path.isdir(folder):
        return (
            f"folder {name!r} holds no model: it has no config.json",
            "give a folder in Hugging Face layout",
        )
    if _HUB_ID.fullmatch(name):
        return None
    near = difflib.get_close_matches(name.lower(), [*ALIASES, *_published()], n=1)
    meant = BUNDLED if near and near[0] in ALIASES else near[0] if near else None
    hint = f"did you mean {meant!r}? " if meant else ""
    return (
        f"no model {name!r}: not a folder, not a published or the bundled model, not a hub id",
        f"{hint}give a folder, {BUNDLED!r}, or an id such as 'Qwen/Qwen2.5-0.5B-Instruct'",
    )


def _published() -> list[str]:
    models = home() / "models"
    return (
        [entry.name for entry in models.iterdir() if not entry.name.startswith(".")]
        if models.is_dir()
        else []
    )
