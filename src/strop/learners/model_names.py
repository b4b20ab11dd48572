"""A model's name -> what it can stand for, told without torch: for checks before any work is spent.

`learners.models` fetches and loads what a name stands for; here only names, folders and the operator's table
are looked at.
"""

from __future__ import annotations

import difflib
import os
import re
from contextlib import closing
from pathlib import Path

from strop.schema.model import BUNDLED, BUNDLED_NAMES, NamedModel
from strop.store.home import home
from strop.store.model_folder import models_folder, published_folder

HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def registered(name: str) -> NamedModel | None:
    """What the operator's table says of a name."""
    return next((model for model in _table() if model.name == name), None)


def folder_here(name: str) -> Path | None:
    """Where the model lies, if nothing has to be fetched for it."""
    folder = os.path.expanduser(name)
    if os.path.isfile(os.path.join(folder, "config.json")):
        return Path(folder).absolute()
    if (published := published_folder(name)) is not None:
        return published
    if name.lower() in BUNDLED_NAMES:
        bundled = models_folder() / BUNDLED
        return bundled if bundled.is_dir() else None
    if not HUB_ID.fullmatch(name):
        entry = registered(name)
        return folder_here(entry.source) if entry is not None and entry.source != name else None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def complaint(name: str) -> tuple[str, str] | None:
    """What is wrong with a name that stands for no model, and the fix; None where it may stand for one.

    Whether the hub has an id is known only when it is asked.
    """
    folder = os.path.expanduser(name)  # not Path: that raises for a name too long to be one
    if os.path.isfile(os.path.join(folder, "config.json")) or published_folder(name) is not None:
        return None
    if name.lower() in BUNDLED_NAMES:
        return None
    is_folder = os.path.isdir(folder)
    if HUB_ID.fullmatch(name) and not is_folder:
        return None
    there = sorted({BUNDLED, *_published(), *(model.name for model in _table())})
    if name in there:
        return None
    if is_folder:
        message = f"folder {name!r} holds no model: it has no config.json"
        return message, "give a folder in Hugging Face layout"
    near = difflib.get_close_matches(name.lower(), [*BUNDLED_NAMES, *there], n=1)
    meant = BUNDLED if near and near[0] in BUNDLED_NAMES else near[0] if near else None
    hint = f"did you mean {meant!r}? " if meant else ""
    return (
        f"no model {name!r}: not a folder, not a published or the bundled model, not a hub id",
        f"{hint}give a folder, {BUNDLED!r}, or an id such as 'Qwen/Qwen2.5-0.5B-Instruct'; names here: "
        f"{', '.join(there)}; or let this name stand for one: strop models add NAME SOURCE",
    )


def _table() -> list[NamedModel]:
    """Without a database there is no table, and nothing heavy is imported to find that out."""
    if not os.environ.get("STROP_DATABASE_URL") and not (home() / "strop.db").is_file():
        return []
    from strop.store.database import open_database
    from strop.store.models import list_models

    with closing(open_database()) as database, database.read() as session:
        return list_models(session)


def _published() -> list[str]:
    folder = models_folder()
    entries = folder.iterdir() if folder.is_dir() else ()
    return [entry.name for entry in entries if not entry.name.startswith(".")]
