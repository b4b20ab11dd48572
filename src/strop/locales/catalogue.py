"""The code's messages and the translations -> one catalogue a language, as `gettext` reads it.

`python -m strop.locales.catalogue` brings every `.po` up to date with the code and compiles it to the `.mo`
beside it; `make docs` runs it. What is not translated yet stays English, and is counted.
"""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from strop.locales import FOLDER

HERE = Path(FOLDER)
SOURCES = HERE.parent
KEYWORDS = ("msg", "t", "say", "plural")
"""The functions whose first arguments are messages; `plural` takes two."""

Key = str | tuple[str, str]


def messages() -> dict[Key, list[str]]:
    """Every message of the code and where it stands; those with a plural as pairs."""
    found: dict[Key, list[str]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        place = path.relative_to(SOURCES).as_posix()
        if not place.startswith("templates/"):
            for key in _in_python(path.read_text(encoding="utf-8")):
                found.setdefault(key, []).append(place)
    for path in sorted((SOURCES / "console" / "templates").glob("*.html")):
        for key in _in_template(path):
            found.setdefault(key, []).append(path.relative_to(SOURCES).as_posix())
    return found


def _in_python(source: str) -> Iterator[Key]:
    """Read from the syntax tree: Babel's own reader does not look into f-strings."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        name, texts = node.func.id, [one.value for one in node.args if isinstance(one, ast.Constant)]
        first = texts[0] if texts else None
        if name not in KEYWORDS or not isinstance(first, str) or not first:
            continue
        second = texts[1] if name == "plural" else None
        yield (first, second) if isinstance(second, str) else first


def _in_template(path: Path) -> Iterator[str]:
    from babel.messages.extract import extract

    with path.open("rb") as file:
        options = {"silent": "false"}
        for _, text, _, _ in extract("jinja2.ext:babel_extract", file, {"t": None}, (), options):
            if isinstance(text, str) and text:
                yield text


def update(po: Path, new: dict[str, str] | None = None) -> list[str]:
    """Rewrite a `.po` with the messages of today, and its `.mo`; gives those that lack a translation.

    `new` has translations to add.
    """
    from babel.messages.catalog import Catalog
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po, write_po

    language = po.parent.parent.name
    before = (
        read_po(io.BytesIO(po.read_bytes()), locale=language) if po.exists() else Catalog(locale=language)
    )
    after = Catalog(locale=language, project="strop", fuzzy=False)
    lacking: list[str] = []
    for key, places in sorted(messages().items(), key=lambda one: str(one[0])):
        kept = before.get(key if isinstance(key, str) else key[0])
        name = key if isinstance(key, str) else key[0]
        text: Any = (new or {}).get(name) or (kept.string if kept is not None else "")
        if isinstance(key, tuple) and isinstance(text, str):
            text = (text,) * after.num_plurals
        after.add(key, text, locations=[(place, 0) for place in sorted(set(places))])
        if not (text[0] if isinstance(text, tuple) else text):
            lacking.append(name)
    buffer = io.BytesIO()
    write_po(buffer, after, width=110, sort_output=True, include_lineno=False)
    # Babel writes the hour into the header, which says nothing here.
    po.write_bytes(
        re.sub(rb'"(POT-Creation-Date|PO-Revision-Date|Generated-By)[^\n]*\n', b"", buffer.getvalue())
    )
    compiled = read_po(io.BytesIO(po.read_bytes()), locale=language)
    compiled.creation_date = compiled.revision_date = datetime(
        2026, 1, 1, tzinfo=UTC
    )  # the same bytes each time
    with po.with_suffix(".mo").open("wb") as file:
        write_mo(file, compiled)
    return lacking


if __name__ == "__main__":
    for po in sorted(HERE.glob("*/LC_MESSAGES/strop.po")):
        lacking = update(po)
        print(f"{po}: {len(lacking)} messages are not translated")
