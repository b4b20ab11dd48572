"""A sentence's template and its parameters -> the sentence in the reader's language.

What is noted of a run, and why it failed, is read later and by people of any language. So a `Message` keeps
its English template and what stands in it; it becomes a sentence where it is read. English is in the code,
every other language in `<language>/LC_MESSAGES/strop.po` below this folder; a new folder is a new language.

Below everything: imports nothing but `os`, and reads a catalogue only when its language is asked for.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as type checkers know it; the first thing a command loads must load nothing more

if TYPE_CHECKING:
    from collections.abc import Mapping
    from gettext import NullTranslations
    from typing import Any

ENGLISH = "en"
FOLDER = os.path.dirname(__file__)

_catalogues: dict[str, NullTranslations] = {}


class Message(str):
    """The English sentence, which can be said in other languages, too.

    It is a `str`, so that logs and whoever knows nothing of languages read English. What is made from it by
    formatting is English alone: put it into another message as a parameter instead.
    """

    template: str
    params: Mapping[str, Any]
    many: str | None
    """The template for more than one, where `params["count"]` decides."""

    def __new__(cls, template: str, params: Mapping[str, Any], many: str | None = None) -> Message:
        kept = {name: _plain(value) for name, value in params.items()}
        chosen = template if many is None or kept["count"] == 1 else many
        made = super().__new__(cls, chosen.format(**kept) if kept else chosen)
        made.template, made.params, made.many = template, kept, many
        return made

    def __reduce__(self) -> tuple[type[Message], tuple[str, Mapping[str, Any], str | None]]:
        return Message, (self.template, self.params, self.many)

    def __add__(self, other: str) -> Message:
        return joined("", self, other)

    def render(self, language: str) -> str:
        """The sentence in a language, and in English where that language lacks it."""
        if language == ENGLISH or not self.template:
            return str(self)
        catalogue = _catalogue(language)
        if self.many is None:
            template = catalogue.gettext(self.template)
        else:
            template = catalogue.ngettext(self.template, self.many, self.params["count"])
        if not self.params:
            return template
        return template.format(**{name: rendered(value, language) for name, value in self.params.items()})

    def as_json(self) -> str:
        """The form in which a store keeps it; `kept` reads it again."""
        import json

        return json.dumps(_value(self), ensure_ascii=False)


def msg(template: str, /, **params: Any) -> Message:
    """A sentence whose template has a name in braces for each parameter, with formats as in `str.format`.

    >>> note = msg("step {step} took {seconds:.1f} s", step=3, seconds=2.04)
    >>> str(note), note.template
    ('step 3 took 2.0 s', 'step {step} took {seconds:.1f} s')
    """
    return Message(template, params)


def plural(one: str, many: str, /, *, count: int, **params: Any) -> Message:
    """
    >>> [str(plural("{count} row", "{count} rows", count=count)) for count in (1, 2)]
    ['1 row', '2 rows']
    """
    return Message(one, {"count": count, **params}, many)


def joined(separator: str, *texts: str) -> Message:
    """Texts in a row, each in the reader's language.

    >>> str(joined("; ", msg("two"), "three"))
    'two; three'
    """
    names = [f"part{number}" for number in range(len(texts))]
    params = dict(zip(names, texts, strict=True))
    if not separator:
        return Message("".join(f"{{{name}}}" for name in names), params)
    return Message("{separator}".join(f"{{{name}}}" for name in names), {"separator": separator, **params})


def rendered(value: Any, language: str) -> Any:
    """A message in a language; anything else as it is."""
    return value.render(language) if isinstance(value, Message) else value


def as_json(text: str | None) -> str | None:
    """What a store keeps beside an English text; None where that is all there is."""
    return text.as_json() if isinstance(text, Message) else None


def kept(text: str, stored: str | None) -> str:
    """A text from a store again: `stored` is what `as_json` gave, or the Chinese that older stores keep."""
    import json

    if not stored:
        return text
    try:
        value: object = json.loads(stored)
    except ValueError:
        return FromOldStore(text, stored)
    found = _from_value(value)
    return found if isinstance(found, Message) else FromOldStore(text, stored)


def languages() -> tuple[str, ...]:
    """English, and every language that has a folder here."""
    there = (name for name in os.listdir(FOLDER) if os.path.isfile(_compiled(name)))
    return (ENGLISH, *sorted(there))


def environment_language() -> str:
    """By the first of STROP_LANG, LC_ALL, LC_MESSAGES and LANG that is set."""
    settings = ("STROP_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
    setting = next((os.environ[name] for name in settings if os.environ.get(name)), "").lower()
    return next((one for one in languages() if setting.replace("-", "_").partition("_")[0] == one), ENGLISH)


def accepted_language(header: str) -> str:
    """The first of `Accept-Language` that there is, else English.

    >>> accepted_language("fr, zh-CN;q=0.8, en;q=0.9"), accepted_language("zh-TW,zh;q=0.9")
    ('en', 'zh')
    >>> accepted_language(""), accepted_language("fr, zh; q=0.5")
    ('en', 'zh')
    """
    asked: list[tuple[float, int, str]] = []
    there = languages()
    for position, part in enumerate(header.replace(" ", "").split(",")):
        tag, _, quality = part.partition(";q=")
        try:
            weight = float(quality) if quality else 1.0
        except ValueError:
            continue
        language = tag.lower().partition("-")[0]
        if language in there and weight > 0:
            asked.append((-weight, position, language))
    return min(asked)[2] if asked else ENGLISH


class FromOldStore(Message):
    """A sentence that a store keeps in English and in Chinese, with nothing of its parameters."""

    chinese: str

    def __new__(cls, english: str, chinese: str) -> FromOldStore:
        made: Any = super().__new__(cls, english, {})
        made.chinese = chinese
        return made

    def __reduce__(self) -> Any:
        return FromOldStore, (str(self), self.chinese)

    def render(self, language: str) -> str:
        return self.chinese if language == "zh" else str(self)

    def as_json(self) -> str:
        return self.chinese


def _compiled(language: str) -> str:
    return os.path.join(FOLDER, language, "LC_MESSAGES", "strop.mo")


def _catalogue(language: str) -> NullTranslations:
    if language not in _catalogues:
        import gettext

        found = gettext.translation("strop", localedir=FOLDER, languages=[language], fallback=True)
        _catalogues[language] = found
    return _catalogues[language]


def _plain(value: Any) -> Any:
    """What a store can keep, and a template formats as the code would have.

    >>> from fractions import Fraction
    >>> str(msg("found {value!r}, {share:.1f}", value=[None, 1], share=Fraction(1, 2)))
    'found [None, 1], 0.5'
    """
    if value is None or isinstance(value, Message) or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    from numbers import Real

    return float(value) if isinstance(value, Real) else str(value)


def _value(value: Any) -> Any:
    if not isinstance(value, Message):
        return value
    if isinstance(value, FromOldStore):
        return str(value)
    params = {name: _value(one) for name, one in value.params.items()}
    return {"id": value.template, "params": params} | ({} if value.many is None else {"many": value.many})


def _from_value(value: Any) -> Any:
    if not isinstance(value, dict) or "id" not in value or "params" not in value:
        return value  # a parameter may be a dict, too
    fields: dict[str, Any] = value
    try:
        params = {name: _from_value(one) for name, one in fields["params"].items()}
        return Message(fields["id"], params, fields.get("many"))
    except (KeyError, ValueError, IndexError, AttributeError, TypeError):
        return None


def in_both(text: str) -> dict[str, str]:
    """English and Chinese, as the API has them of findings."""
    return {"en": str(text), "zh": str(rendered(text, "zh"))}
