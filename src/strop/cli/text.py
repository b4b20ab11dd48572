"""A sentence -> the one in the user's language: Chinese where the environment says so, else English."""

from __future__ import annotations

from strop.locales import environment_language, msg, rendered

TYPE_CHECKING = False  # as type checkers know it

if TYPE_CHECKING:
    from typing import Any


def t(template: str, /, **params: Any) -> str:
    """By the first of STROP_LANG, LC_ALL, LC_MESSAGES and LANG that is set; `template` as in `locales.msg`."""
    return told(msg(template, **params))


def told(text: str) -> str:
    """A text that may be a message, in the user's language."""
    return str(rendered(text, environment_language()))


def pick(english: str, chinese: str) -> str:
    """Of a text that came in both languages, from a server or another package."""
    return chinese if environment_language() == "zh" else english
