"""Presets -> their table in docs/rewards.md, so that the page cannot say anything else than the code.

Run `python -m strop.functions.rewards_doc FILE` after a preset changed; a test compares the two.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

from pydantic.fields import FieldInfo

from strop.functions.preset_catalogue import COMMON, all_presets

BEGIN = "<!-- presets: made from the code by python -m strop.functions.rewards_doc -->"
END = "<!-- /presets -->"


def render() -> str:
    """The part of the page between the marks, with them."""
    lines = [BEGIN, "", "| preset | what it gives | compares with a reference |", "|---|---|---|"]
    for one in all_presets().values():
        lines.append(f"| `{one.name}` | {_cell(one.summary)} | {'yes' if one.compares else 'no'} |")
    lines += ["", "Every preset takes", ""]
    some = next(iter(all_presets().values()))
    lines += [_parameter(name, some.fields[name]) for name in COMMON]
    lines += ["", "(`reference` where it compares with one.) Beside these:", ""]
    for one in all_presets().values():
        own = [_parameter(name, info) for name, info in one.fields.items() if name not in COMMON]
        lines += [f"**{one.name}**", "", *(own or ["* nothing."]), ""]
    return "\n".join([*lines, END])


def _parameter(name: str, info: FieldInfo) -> str:
    default = "" if info.is_required() else f" = `{_default(info.default)}`"
    return f"* `{name}`{default}: {_cell(info.description or '')}."


def _default(value: Any) -> str:
    """As one would write it in YAML."""
    if isinstance(value, tuple):
        words = [str(one) for one in cast("tuple[object, ...]", value)]
        return f"[{', '.join(words)}]" if len(words) <= 5 else f"[{', '.join(words[:3])}, ...]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _cell(text: str) -> str:
    return text.rstrip(".").replace("|", "\\|")


def write(page: Path) -> None:
    """Put the part into its place."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(before + render() + after, encoding="utf-8")


def presets_of_page(page: Path) -> str:
    """The part as it stands there."""
    _, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    return BEGIN + rest.partition(END)[0] + END


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    print(f"wrote {sys.argv[1]}")
