"""A completion -> the program in it: fenced blocks, else an unclosed fence, else what looks like code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from strop_sandbox.languages import BY_NAME

ExtractedType = Literal["fenced", "incomplete_fenced", "heuristic", "empty"]

FENCED, INCOMPLETE, HEURISTIC = 30, 20, 10
_KINDS: dict[int, ExtractedType] = {FENCED: "fenced", INCOMPLETE: "incomplete_fenced", HEURISTIC: "heuristic"}

_FENCED = re.compile(r"```([^\n`]*)\n(.*?)\n[ \t]*```", re.S)
_OPENED = re.compile(r"```([^\n`]*)\n(.*)", re.S)
_PYTHON_START = re.compile(r"(?:import|from|def|class|async\s+def)\s|@\w")
_PYTHON_DEFINES = re.compile(r"^(?:def|class|async\s+def)\s", re.M)
_SQL = re.compile(r"\b(?:select|with)\b.*?(?:;|\Z)", re.S | re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """Code, and how sure it is that it is meant."""

    priority: int
    code: str
    language: str = ""


def extract(
    completion: str, language: str, extra_blocks: Iterable[CodeBlock] = ()
) -> tuple[str, ExtractedType | None]:
    """The program in the language, and where it was found; None where the caller's own logic found it.

    >>> extract("So:\\n```py\\nprint(1)\\n```\\nDone", "python")
    ('print(1)', 'fenced')
    >>> extract("no code at all", "cpp")
    ('', 'empty')
    """
    blocks = [*extra_blocks, *_blocks(completion, language)]
    if not blocks:
        return "", "empty"
    best = max(block.priority for block in blocks)
    kept = [block for block in blocks if block.priority == best]
    chosen = next((block for block in kept if canonical(block.language) == canonical(language)), kept[0])
    return chosen.code, _KINDS.get(best)


def fenced_blocks(completion: str) -> list[CodeBlock]:
    """The blocks between fences, in order; without any, what follows a fence that is never closed."""
    found = [
        CodeBlock(priority=FENCED, code=code, language=_tag(tag)) for tag, code in _FENCED.findall(completion)
    ]
    if not found and (opened := _OPENED.search(completion)):
        found = [CodeBlock(priority=INCOMPLETE, code=opened[2], language=_tag(opened[1]))]
    return found


def all_blocks(completion: str, language: str) -> tuple[str, ExtractedType]:
    """As `extract`, but every block of that kind, one after the other."""
    blocks = _blocks(completion, language)
    kind = _KINDS[blocks[0].priority] if blocks else "empty"
    return "\n\n".join(block.code for block in blocks), kind


def canonical(language: str) -> str:
    word = language.strip().lower()
    known = BY_NAME.get(word) or BY_NAME.get(language.strip())
    return known.name if known is not None else word


def _blocks(completion: str, language: str) -> list[CodeBlock]:
    found = fenced_blocks(completion)
    if not found:
        found = [
            CodeBlock(priority=HEURISTIC, code=code, language=language)
            for code in _heuristic(completion, canonical(language))
        ]
    return found


def _tag(tag: str) -> str:
    words = tag.split()
    return words[0] if words else ""


def _heuristic(completion: str, language: str) -> list[str]:
    if language in ("python", "pytest"):
        return _python_definitions(completion)
    if language == "sql":
        found = _SQL.search(completion)
        return [found[0].strip()] if found else []
    return [completion] if language == "bash" and completion.strip() else []


def _python_definitions(text: str) -> list[str]:
    """Lines that import, define or belong to a definition, where at least one defines something."""
    kept: list[str] = []
    inside = False
    for line in text.split("\n"):
        inside = bool(_PYTHON_START.match(line)) or (inside and (not line.strip() or line[0] in " \t)"))
        if inside:
            kept.append(line)
    code = "\n".join(kept).strip("\n")
    return [code] if _PYTHON_DEFINES.search(code) else []


EXTRACTION_PROGRAM = """
import json, re, sys
from typing import Any, Dict, List, Optional, Tuple

class CodeBlock:
    def __init__(self, priority, code, language=""):
        self.priority, self.code, self.language = priority, code, language

_taken = []

def submit_code_blocks(blocks):
    _taken.extend(blocks)

_order = json.loads(sys.stdin.read())
_names = dict(completion=_order["completion"], CodeBlock=CodeBlock, submit_code_blocks=submit_code_blocks)
exec(_order["logic"], {**globals(), **_names})
with open("blocks.json", "w") as _file:
    json.dump([[int(b.priority), str(b.code), str(b.language)] for b in _taken], _file)
"""
"""A caller's own logic runs in a box, never here: the completion and the logic on stdin, blocks in a file."""


_ROWS = TypeAdapter(list[tuple[int, str, str]])


def blocks_of(rows: object) -> list[CodeBlock]:
    """Raises:
    ValueError: they are not code blocks; what runs in a box may write anything.
    """
    found = _ROWS.validate_python(rows)
    return [CodeBlock(priority=priority, code=code, language=tag) for priority, code, tag in found]


_ENTRY = {
    "python": re.compile(r"^if\s+__name__\s*==\s*['\"]__main__['\"]\s*:.*", re.M | re.S),
    "cpp": re.compile(r"^\s*int\s+main\s*\(.*", re.M | re.S),
    "go": re.compile(r"^\s*package\s+main\s*$", re.M),
}
_EXAMPLE = re.compile(r"^# Example usage.*", re.M | re.S | re.I)


def without_entry(code: str, language: str) -> str:
    """The functions of a program without what runs them, which is the tests' to do."""
    pattern = _ENTRY.get(language)
    if pattern is not None:
        code = pattern.sub("", code)
    return _EXAMPLE.sub("", code) if language == "python" else code
