"""Two texts -> the one in the user's language: Chinese where the environment says so, else English."""

from __future__ import annotations

import os

_SETTINGS = ("STROP_LANG", "LC_ALL", "LC_MESSAGES", "LANG")


def t(en: str, zh: str) -> str:
    """Choose by the first of STROP_LANG, LC_ALL, LC_MESSAGES and LANG that is set."""
    language = next((os.environ[name] for name in _SETTINGS if os.environ.get(name)), "")
    return zh if language.lower().startswith("zh") else en
