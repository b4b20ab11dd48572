"""A sentence in English that knows its Chinese -> the one that a reader asks for.

What is noted of a run, and why it failed, is read later and by people of either language: it is kept in both.
Below everything; imports nothing, for the command knows its language before it loads anything.
"""

from __future__ import annotations

import os

LANGUAGES = ("en", "zh")


class Bilingual(str):
    """The English sentence, with the Chinese one as `zh`.

    It is a `str`, so that logs and whoever knows nothing of languages read English. What is made from it by
    formatting is English alone: put sentences together with `both` or `+`.

    >>> note = both("18 steps", "共 18 步") + both("; slow", "；较慢")
    >>> note, note.zh
    ('18 steps; slow', '共 18 步；较慢')
    """

    zh: str

    def __new__(cls, en: str, zh: str) -> Bilingual:
        made = super().__new__(cls, en)
        made.zh = zh
        return made

    def __reduce__(self) -> tuple[type[Bilingual], tuple[str, str]]:
        return Bilingual, (str(self), self.zh)

    def __add__(self, other: str) -> Bilingual:
        return Bilingual(str(self) + str(other), self.zh + chinese(other))


def both(en: str, zh: str) -> Bilingual:
    return Bilingual(en, zh)


def chinese(text: str) -> str:
    """As it is where there is no Chinese of it."""
    return text.zh if isinstance(text, Bilingual) else text


def joined(separator: Bilingual, *texts: str) -> Bilingual:
    """
    >>> joined(both("; ", "；"), both("a", "甲"), "b").zh
    '甲；b'
    """
    return Bilingual(str(separator).join(texts), separator.zh.join(map(chinese, texts)))


def chinese_of(text: str | None) -> str | None:
    """None where there is no Chinese of it: what a store keeps beside the text."""
    return text.zh if isinstance(text, Bilingual) else None


def environment_language() -> str:
    """By the first of STROP_LANG, LC_ALL, LC_MESSAGES and LANG that is set."""
    settings = ("STROP_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
    language = next((os.environ[name] for name in settings if os.environ.get(name)), "")
    return "zh" if language.lower().startswith("zh") else "en"


def accepted_language(header: str) -> str:
    """The first of `Accept-Language` that there is, else English.

    >>> accepted_language("fr, zh-CN;q=0.8, en;q=0.9"), accepted_language("zh-TW,zh;q=0.9")
    ('en', 'zh')
    >>> accepted_language("")
    'en'
    """
    asked: list[tuple[float, int, str]] = []
    for position, part in enumerate(header.split(",")):
        tag, _, quality = part.strip().partition(";q=")
        try:
            weight = float(quality) if quality else 1.0
        except ValueError:
            continue
        language = tag.strip().lower().partition("-")[0]
        if language in LANGUAGES and weight > 0:
            asked.append((-weight, position, language))
    return min(asked)[2] if asked else "en"
