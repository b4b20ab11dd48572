"""A sentence -> the one in the user's language: Chinese where the environment says so, else English."""

from __future__ import annotations

from typing import Any

from strop.locales import environment_language, msg, rendered


def t(template: str, chinese: str | None = None, /, **params: Any) -> str:
    """By the first of STROP_LANG, LC_ALL, LC_MESSAGES and LANG that is set; `template` as in `locales.msg`."""
    language = environment_language()
    if chinese is not None:
        return chinese if language == "zh" else template
    return str(rendered(msg(template, **params), language))


def told(text: str) -> str:
    """A text that may be a message, in the user's language."""
    return str(rendered(text, environment_language()))
