"""Two texts -> the one in the user's language: Chinese where the environment says so, else English."""

from __future__ import annotations

from strop.bilingual import chinese, environment_language


def t(en: str, zh: str) -> str:
    """Choose by the first of STROP_LANG, LC_ALL, LC_MESSAGES and LANG that is set."""
    return zh if environment_language() == "zh" else en


def told(text: str) -> str:
    """A text that may know its Chinese, in the user's language."""
    return t(str(text), chinese(text))
