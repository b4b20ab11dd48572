"""A request -> the language and theme of its pages, and values as people of that language read them."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from starlette.requests import Request

from strop.locales import accepted_language, languages, msg, rendered

THEMES = ("auto", "light", "dark")
LANGUAGE_COOKIE = "strop_language"
THEME_COOKIE = "strop_theme"

_TOO_DEEP = "[…]"


@dataclass(frozen=True, slots=True)
class Say:
    """A template and its parameters, as `locales.msg` takes them -> the sentence in a page's language."""

    language: str

    def __call__(self, template: str, /, **params: Any) -> str:
        return self.said(msg(template, **params))

    def said(self, text: str | None) -> str:
        """A text that may be a message."""
        return "" if text is None else str(rendered(text, self.language))

    def pick(self, english: str, chinese: str) -> str:
        """Of a text that is kept in both languages."""
        return chinese if self.language == "zh" else english


def language_of(request: Request) -> str:
    """As chosen on a page, else the first of the browser's languages that there is, else English."""
    chosen = request.cookies.get(LANGUAGE_COOKIE)
    if chosen in languages():
        return chosen
    return accepted_language(request.headers.get("accept-language", ""))


def say_in(language: str) -> Say:
    return Say(language)


def theme_of(request: Request) -> str:
    chosen = request.cookies.get(THEME_COOKIE)
    return chosen if chosen in THEMES else "auto"


def number(value: object, digits: int = 4) -> str:
    """Four digits that mean something; a dash for what is none.

    >>> number(0.123456), number(12345.6), number(3), number(None), number(float("nan")), number(2.5e-7)
    ('0.1235', '12,346', '3', '–', '–', '2.5e-07')
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "–"
    if abs(value) < 1e15 and value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def percent(value: float | None) -> str:
    """
    >>> percent(0.98765), percent(None)
    ('98.8 %', '–')
    """
    return "–" if value is None or not math.isfinite(value) else f"{value * 100:.3g} %"


def size(value: int) -> str:
    """Bytes.

    >>> size(999), size(20480), size(5 * 1024**3)
    ('999 B', '20 KiB', '5 GiB')
    """
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"
        amount /= 1024
    raise AssertionError("the last unit takes all")


def duration(seconds: float | None, say: Say) -> str:
    """The two largest units.

    >>> duration(3725, say_in("en")), duration(0.25, say_in("en")), duration(65, say_in("zh"))
    ('1 h 2 min', '250 ms', '1 分 5 秒')
    """
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} {say('s')}"
    whole = round(seconds)
    parts = (
        (whole // 86400, say("d")),
        (whole // 3600 % 24, say("h")),
        (whole // 60 % 60, say("min")),
        (whole % 60, say("s")),
    )
    first = next(index for index, (amount, _) in enumerate(parts) if amount)
    return " ".join(f"{amount} {unit}" for amount, unit in parts[first : first + 2] if amount)


def moment(when: datetime | None) -> Markup:
    """UTC; a script of the page turns it into the reader's own time."""
    if when is None:
        return Markup("–")
    utc = when.astimezone(UTC)
    shown = utc.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}">{} UTC</time>').format(utc.isoformat(timespec="milliseconds"), shown)


def pretty(value: Any, indent: int = 2) -> str:
    """JSON to read; text that is JSON is laid out, too. What is nested too deep stands as it is.

    >>> pretty('{"a":1}') == pretty({"a": 1}), pretty("plain"), pretty(None)
    (True, 'plain', 'null')
    """
    try:
        found = json.loads(value) if isinstance(value, str) else value
        return json.dumps(found, ensure_ascii=False, indent=indent, default=str)
    except (ValueError, RecursionError):  # a model writes what it likes
        return value if isinstance(value, str) else _TOO_DEEP


def shortened(text: object, *, home: Path) -> str:
    """A text in which places below Strop's home, and below the user's, are told from there.

    >>> shortened("in /srv/strop/models/m and /data/rows.jsonl", home=Path("/srv/strop"))
    'in $STROP_HOME/models/m and /data/rows.jsonl'
    >>> shortened(Path.home() / ".strop" / "jobs", home=Path.home() / ".strop")
    '~/.strop/jobs'
    """
    told, users = str(text), Path(os.path.expanduser("~"))  # which stays where nobody has told of a home
    near = f"~/{home.relative_to(users)}" if users in home.parents else "$STROP_HOME"
    for place, name in ((home, near), (users, "~")):
        if len(place.parts) > 1:  # the root of a file system is no home
            told = re.sub(rf"(?<![\w.~-]){re.escape(str(place))}(?=/|$|[\s'\",;:)])", name, told)
    return told


def broken(text: str) -> Markup:
    """Escaped, with places at slashes, dots and hyphens where a long name may break."""
    made = str(escape(text))
    for letter in "/_-":
        made = made.replace(letter, f"{letter}<wbr>")
    return Markup(made)
