"""Every message of the code has its translation, with the same parameters, where the program reads it."""

from __future__ import annotations

import gettext
import io
import string
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
        texts = [one.string] if isinstance(one.string, str) else list(one.string)
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
