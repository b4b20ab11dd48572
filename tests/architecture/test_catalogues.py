"""Every message of the code has its translation, with the same parameters, where the program reads it."""

from __future__ import annotations

import ast
import gettext
import io
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from strop import locales
from strop.locales import catalogue, msg, plural
from strop.locales.catalogue import HERE

LANGUAGES = [language for language in locales.languages() if language != locales.ENGLISH]


def translations(language: str) -> Catalog:
    return read_po(io.BytesIO((HERE / language / "LC_MESSAGES" / "strop.po").read_bytes()), locale=language)


def fields(template: str) -> set[tuple[str, str, str | None]]:
    parsed = string.Formatter().parse(template)
    return {(name, spec or "", conversion) for _, name, spec, conversion in parsed if name is not None}


def fields_of(text: str) -> set[tuple[str, str, str | None]]:
    """Those of a message that has parameters; `{"answer": 4}` is none."""
    return fields(text) if re.search(r"\{\w+[!:}]", text) else set()


def calls() -> Iterator[tuple[str, ast.Call, list[str]]]:
    """Every call in the code that makes a message of literal templates: its place, itself, the templates."""
    for path in sorted(catalogue.SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
            templates = [text for text in texts if isinstance(text, str)]
            if node.func.id in catalogue.KEYWORDS and templates:
                yield f"{path.relative_to(catalogue.SOURCES)}:{node.lineno}", node, templates


def test_every_call_gives_the_parameters_that_its_message_names_and_no_others() -> None:
    wrong: list[str] = []
    for place, call, templates in calls():
        given = {keyword.arg for keyword in call.keywords}
        named = {name for text in templates for name, _, _ in fields(text)} if given else set[str]()
        unfilled = not given and any(re.search(r"\{\w+[!:}]", text) for text in templates)
        if given != named or unfilled:
            wrong.append(f"{place} {templates[0]!r}: {sorted(named ^ given, key=str)}")
    assert wrong == []


def test_no_message_formats_a_date_which_is_text_once_it_is_a_parameter() -> None:
    specs = [(place, spec) for place, _, texts in calls() for text in texts for _, spec, _ in fields_of(text)]
    assert [place for place, spec in specs if "%" in spec[:-1]] == []


def test_chinese_is_one_of_the_languages() -> None:
    assert LANGUAGES == ["zh"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_message_of_the_code_is_translated_and_none_is_left_over(language: str) -> None:
    said = {key if isinstance(key, str) else key[0] for key in catalogue.messages()}
    known = {one.id if isinstance(one.id, str) else one.id[0] for one in translations(language) if one.id}
    assert (said - known, known - said) == (set(), set())
    untranslated = [one.id for one in translations(language) if one.id and not one.string]
    assert untranslated == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_names_no_parameter_that_its_message_lacks(language: str) -> None:
    for one in translations(language):
        if not one.id or not any("{" in text for text in ([one.id] if isinstance(one.id, str) else one.id)):
            continue
        ids = [one.id] if isinstance(one.id, str) else list(one.id)
        texts = [one.string] if isinstance(one.string, str) else list(one.string or ())
        given = {name for text in ids for name, _, _ in fields(text)}
        assert {name for text in texts for name, _, _ in fields(text)} <= given, one.id


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_program_reads_is_what_the_catalogue_says(language: str) -> None:
    compiled = (HERE / language / "LC_MESSAGES" / "strop.mo").read_bytes()
    read = gettext.GNUTranslations(io.BytesIO(compiled))
    for one in translations(language):
        if isinstance(one.id, str) and one.id:
            assert read.gettext(one.id) == one.string


def test_a_folder_is_a_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pseudo = Catalog(locale="de")
    for key in catalogue.messages():
        text = key if isinstance(key, str) else key[0]
        pseudo.add(key, f"«{text}»" if isinstance(key, str) else (f"«{key[0]}»", f"«{key[1]}»"))
    folder = tmp_path / "de" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    with (folder / "strop.mo").open("wb") as file:
        write_mo(file, pseudo)
    monkeypatch.setattr(locales, "FOLDER", str(tmp_path))
    assert locales.languages() == ("en", "de")
    assert locales.accepted_language("de-AT, en;q=0.5") == "de"
    assert msg("step {step}", step=3).render("de") == "«step 3»"
    counted = plural("{count} function loaded", "{count} functions loaded", count=2)
    assert counted.render("de") == "«2 functions loaded»"
