"""Documents that a reader can follow: no placeholder, no dead link."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_nothing_was_left_to_fill_in(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    assert [target for target in targets if not (document.parent / target).exists()] == []
    assert not re.search(r"\b(DEMO_OUTPUT|CURVE|TODO|TBD|FIXME)\b", text)


def test_both_readmes_show_the_same_commands() -> None:
    def blocks(name: str) -> list[str]:
        text = (ROOT / name).read_text(encoding="utf-8")
        found = re.findall(r"```(?:yaml|python)?\n(.*?)```", text, re.DOTALL)
        return [re.sub(r"\s*#.*", "", block) for block in found]

    assert blocks("README.md") == blocks("README.zh-CN.md")
