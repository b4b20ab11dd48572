"""Names of published models -> folders below `STROP_HOME/models`, without a look into the database.

Apart from `published`, because names are checked before anything heavy is imported.
"""

from __future__ import annotations

import re
from pathlib import Path

from strop.errors import ModelError
from strop.locales import msg
from strop.schema.model import BUNDLED, BUNDLED_NAMES, MODEL_NAME
from strop.store.home import home

_NAME = re.compile(MODEL_NAME)


def models_folder() -> Path:
    return home() / "models"


def published_folder(name: str) -> Path | None:
    """The folder of the published model `name`; None if it does not exist."""
    if not _NAME.fullmatch(name):
        return None
    folder = models_folder() / name
    return folder if (folder / "config.json").is_file() else None


def check_name(name: str) -> None:
    """Raises:
    ModelError: 400 for what cannot name a model.
    """
    if not _NAME.fullmatch(name) or name.lower() in BUNDLED_NAMES:
        error = ModelError(
            msg("a model cannot be called {name!r}", name=name),
            fix=msg(
                "take letters, digits, '.', '-' and '_' (128 at most), and not {bundled!r}", bundled=BUNDLED
            ),
        )
        error.http_status = 400
        raise error
