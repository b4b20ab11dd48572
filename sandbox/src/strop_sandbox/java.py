"""Java source -> the file that it must stand in, and the class whose `main` is run.

Sources come from programs that may be hostile: each is read once, in time linear in its length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_READ_CHARACTERS = 1 << 20
_KINDS = ("class", "interface", "enum", "record")
_TOKEN = re.compile(
    r"//[^\n]*+"
    r"|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?"
    r'|"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?'
    r'|"(?:[^"\\\n]++|\\.)*+"?'
    r"|'(?:[^'\\\n]++|\\.)*+'?"
    r"|([{}();]|[\w$]++(?:\.[\w$]++)*+)",
    re.DOTALL,
)
"""A comment, a text, or (the group) a word or a bracket of the code itself."""


@dataclass(slots=True)
class _Class:
    name: str
    is_public: bool
    has_main: bool = False


def java_file(code: str) -> str:
    """Below its package's folders; a public class must stand in a file of its name.

    >>> java_file("package a.b; class Tool {} class Run { public static void main(String[] a) {} }")
    'a/b/Run.java'
    >>> java_file("// class A\\nclass B {}")
    'Main.java'
    """
    package, classes = _outline(code)
    chosen = [one.name for one in classes if one.is_public] or [one.name for one in classes if one.has_main]
    return f"{package.replace('.', '/')}/".lstrip("/") + f"{chosen[0] if chosen else 'Main'}.java"


def java_entry(code: str) -> str:
    """The class that has `main`, by its full name; the public one where several have.

    >>> java_entry("package a.b; public class Tool {} class Run { static public void main(String... a) {} }")
    'a.b.Run'
    """
    _, classes = _outline(code)
    runnable = sorted((one for one in classes if one.has_main), key=lambda one: not one.is_public)
    names = java_file(code).removesuffix(".java").split("/")
    return ".".join([*names[:-1], runnable[0].name if runnable else names[-1]])


def _outline(code: str) -> tuple[str, list[_Class]]:
    """The package, and the classes that lie in no other."""
    package, classes = "", list[_Class]()
    current: _Class | None = None
    depth = 0
    words: list[str] = []  # since the last bracket or semicolon
    for match in _TOKEN.finditer(code[:_READ_CHARACTERS]):
        word = match[1]
        if word == "{":
            if depth == 0:
                current = _declared(words)
                classes += [current] if current else []
            depth += 1
        elif word == "}":
            depth = max(0, depth - 1)
        elif word == ";":
            if depth == 0 and words[:1] == ["package"] and len(words) == 2:
                package = words[1]
        elif word == "(":
            if depth == 1 and current and words[-2:] == ["void", "main"] and "static" in words:
                current.has_main = True
            continue
        elif word and word != ")":
            words.append(word)
            continue
        else:
            continue
        words = []
    return package, classes


def _declared(words: list[str]) -> _Class | None:
    for position, word in enumerate(words[:-1]):
        if word in _KINDS:
            return _Class(words[position + 1], "public" in words[:position])
    return None
