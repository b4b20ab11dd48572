"""Code of a model, tests of a benchmark -> one program, by the ways of each language.

`with_end` makes a program say a word when it has come to its end; that tells one that was tested from one
that left before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_PYTHON_IMPORTS = """\
import math, re, sys, copy, datetime, itertools, collections, heapq, statistics, functools, hashlib, string
from typing import *
from collections import *
"""
_NUMPY = "import numpy\nimport numpy as np\n"

_IMPORTS = {
    "cpp": "#include <bits/stdc++.h>\n#include <cassert>\nusing namespace std;\n",
    "java": "".join(
        f"import {package}.*;\n"
        for package in ("java.util", "java.lang.reflect", "java.security", "java.math", "java.io")
    )
    + "import java.util.stream.*;\n",
}
_JAVATUPLES = "import org.javatuples.*;\n"


def with_imports(program: str, language: str) -> str:
    """What the benchmarks of a language take for granted, before a program that is to be run."""
    if language == "python":
        return _PYTHON_IMPORTS + (_NUMPY if re.search(r"\bnp\b|\bnumpy\b", program) else "") + program
    if language == "java" and re.search(r"\b(?:Unit|Pair|Triplet|Quartet|Quintet|Sextet)\b", program):
        return _IMPORTS["java"] + _JAVATUPLES + program
    return _IMPORTS.get(language, "") + program


def python_tests(test: str) -> str:
    """A test that calls `unittest.main` says by an error whether it failed, and goes on to its end."""
    return re.sub(
        r"\bunittest\.main\(([^()]*)\)",
        lambda found: f"assert unittest.main({_and(found[1])}exit=False).result.wasSuccessful()",
        test,
    )


def _and(arguments: str) -> str:
    return f"{arguments.rstrip().rstrip(',')}, " if arguments.strip() else ""


_MAIN = {
    "java": re.compile(r"^[ \t]*public\s+static\s+void\s+main\s*\([^)]*\)[^{]*\{", re.M),
    "go": re.compile(r"^func\s+main\s*\(\s*\)\s*\{", re.M),
    "rust": re.compile(r"^fn\s+main\s*\(\s*\)\s*\{", re.M),
    "cpp": re.compile(r"^[ \t]*(?:int|void|auto)\s+main\s*\([^)]*\)[^{;]*\{", re.M),
    "c": re.compile(r"^[ \t]*(?:int|void)\s+main\s*\([^)]*\)[^{;]*\{", re.M),
}
_PYTHON_MAIN = re.compile(r"^if\s+__name__\s*==\s*['\"]__main__['\"]\s*:.*", re.M | re.S)


def without_main(code: str, language: str) -> str:
    """A model's code without what starts it: the tests have a start of their own.

    >>> without_main("int f();\\nint main() { if (1) {} }\\nint g();", "cpp")
    'int f();\\n\\nint g();'
    """
    if language == "python":
        return _PYTHON_MAIN.sub("", code)
    found = _MAIN[language].search(code) if language in _MAIN else None
    return code[: found.start()] + code[_end_of_block(code, found.end()) or len(code) :] if found else code


def _end_of_block(code: str, start: int) -> int | None:
    """Where the block that was opened before `start` is closed; None where it never is."""
    depth = 1
    for index, step in braces(code, start):
        depth += step
        if not depth:
            return index + 1
    return None


_BRACES = re.compile(
    r"""[{}] | "(?:\\.|[^"\\])*" | '(?:\\'|\\[^\n']{1,9}|[^\\'\n])' | `[^`]*` | //[^\n]* | /\*.*?\*/""",
    re.S | re.X,
)


def braces(code: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """Where one is opened (1) or closed (-1), as in C: not in strings, characters and comments.

    >>> list(braces('f("}", \\'{\\'); { // {'))
    [(13, 1)]
    """
    for found in _BRACES.finditer(code, start):
        if found[0] in "{}":
            yield found.start(), 1 if found[0] == "{" else -1


def inside_class(code: str) -> str:
    """What stands in the outermost class of a Java program, which the tests put into another.

    >>> inside_class("import a.b;\\nclass P { static int f() { return 1; } }")
    ' static int f() { return 1; } '
    """
    found = re.search(r"\bclass\s+\w+[^{]*\{", code)
    if found is None:
        return code
    end = _end_of_block(code, found.end())
    return code[found.end() : len(code) if end is None else end - 1]


def without_public(code: str) -> str:
    """Java: a public class must stand in a file of its name, and there is one file."""
    return re.sub(r"^([ \t]*)public\s+((?:final\s+|abstract\s+)?class\b)", r"\1\2", code, flags=re.M)


def without_last_braces(code: str, count: int) -> str:
    """For tests that begin with the braces that a function, or a class, still lacks.

    >>> without_last_braces("int f() {\\n return 1;\\n}\\n", 1)
    'int f() {\\n return 1;\\n'
    """
    for _ in range(count):
        code = code[: code.rfind("}")] if "}" in code else code
    return code


_GO_IMPORT = r'(?:([\w.]+)[ \t]+)?("[^"\n]+")'


def go_program(program: str) -> str:
    """Pieces of Go, each with its own package and imports -> one file with those that it uses."""
    found = {("", '"testing"'), ("", '"fmt"'), *re.findall(rf"^import\s+{_GO_IMPORT}", program, re.M)}
    for block in re.findall(r"^import\s*\((.*?)\)", program, re.M | re.S):
        found.update(re.findall(_GO_IMPORT, block))
    body = re.sub(rf"^import\s*\(.*?\)|^import\s+{_GO_IMPORT}|^package\s+\w+", "", program, flags=re.M | re.S)
    used = sorted(
        f"\t{alias} {path}\n" if alias else f"\t{path}\n"
        for alias, path in found
        if _may_stand(alias, path, body)
    )
    return "package main\n\nimport (\n" + "".join(used) + ")\n" + body


def _may_stand(alias: str, path: str, body: str) -> bool:
    """Whether Go would let this import stand: `_` and `.` name nothing, `math/rand/v2` is `rand`."""
    name = alias or re.sub(r"/v\d+$", "", path.strip('"')).rpartition("/")[2]
    return alias in ("_", ".") or re.search(rf"\b{re.escape(name)}\.", body) is not None


_RUN_LUA = "os.exit(lu.LuaUnit.run())"
_IN_MAIN = {
    "cpp": 'std::puts("{word}"); return 0;',
    "c": 'puts("{word}"); return 0;',
    "rust": 'println!("{word}");',
    "java": 'System.out.println("{word}");',
}
_LAST_LINE = {
    "nodejs": 'console.log("{word}");',
    "typescript": 'console.log("{word}");',
    "php": 'echo "\\n{word}";',
    "perl": 'print "\\n{word}";',
    "R": 'cat("\\n{word}")',
    "bash": "echo {word}",
    "ruby": 'puts "{word}"',
}
_RUN_RUBY = "Test::Unit::AutoRunner.need_auto_run = false\nexit 1 unless Test::Unit::AutoRunner.run\n"


def with_end(program: str, language: str, word: str) -> str | None:
    """The program that says `word` when it has come to its end; None where that cannot be put into it.

    The word stands in the program: one that reads its own file could say it. (Python's has a better way.)
    """
    if language == "lua" and program.rstrip().endswith(_RUN_LUA):
        run = f'if lu.LuaUnit.run() ~= 0 then os.exit(1) end\nprint("{word}")'
        return program.rstrip().removesuffix(_RUN_LUA) + run
    if language == "ruby" and "test/unit" in program:
        program += f"\n{_RUN_RUBY}"
    if language in _LAST_LINE:
        return f"{program}\n{_LAST_LINE[language].replace('{word}', word)}\n"
    if language in _IN_MAIN:
        return _at_end_of_main(program, language, _IN_MAIN[language].replace("{word}", word))
    return None


def _at_end_of_main(program: str, language: str, line: str) -> str | None:
    """Where `main` is the last thing in the program."""
    starts = list(_MAIN[language].finditer(program))
    if not starts:
        return None
    end = _end_of_block(program, starts[-1].end())
    if end is None or program[end:].strip() not in ("", "}"):
        return None
    body = re.sub(r"return\s+0\s*;\s*\Z", "", program[: end - 1])
    return f"{body}{line}\n}}{program[end:]}"
