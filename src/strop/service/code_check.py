"""A bundle's folder, a file and a class name -> what is wrong with them, found without running any of it."""

from __future__ import annotations

import ast
import difflib
from importlib.util import decode_source
from pathlib import Path

from strop.errors import RequestError
from strop.locales import msg

MAX_SOURCE_BYTES = 4 * 1024 * 1024


def check_class(folder: Path, name: str, func: str) -> None:
    """Raises:
    RequestError: there is no such file, it is not Python, or nothing in it has that name.
    """
    if not func.isidentifier():
        raise RequestError(
            msg("func: {func!r} is not a class name", func=func[:100]), fix=msg("e.g. RewardProcessor")
        )
    file = folder / name
    if name.startswith("/") or ".." in Path(name).parts or not name.endswith(".py"):
        raise RequestError(
            msg("name: {name!r} is not a Python file of the bundle", name=name[:200]),
            fix=msg("e.g. functions/reward.py"),
        )
    if not file.is_file():
        here = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py"))
        raise RequestError(msg("name: the bundle has no file {name!r}", name=name), fix=_near(name, here))
    if file.stat().st_size > MAX_SOURCE_BYTES:
        raise RequestError(
            msg(
                "{name}: {st_size} bytes are too many for a source file",
                name=name,
                st_size=file.stat().st_size,
            )
        )
    try:
        # As an import decodes it; the parser alone lets bytes in comments pass that an import refuses.
        tree = ast.parse(decode_source(file.read_bytes()), filename=name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        raise RequestError(
            msg("{name}{line}: not Python: {what}", name=name, line=line, what=what)
        ) from error
    names, open_ended = _names(tree)
    if func not in names and not open_ended:
        classes = sorted(node.name for node in tree.body if isinstance(node, ast.ClassDef))
        raise RequestError(
            msg("{name}: nothing is called {func!r}", name=name, func=func), fix=_near(func, classes)
        )


def _names(tree: ast.Module) -> tuple[set[str], bool]:
    """Names bound anywhere at the module's level, and whether a star import or `exec` may bind more."""
    names: set[str] = set()
    open_ended = False
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                open_ended = open_ended or alias.name == "*"
                names.add((alias.asname or alias.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            open_ended = open_ended or node.func.id in ("exec", "globals", "setattr")
    return names, open_ended


def _near(wanted: str, known: list[str]) -> str:
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"it has {', '.join(known[:10])}" if known else "it has none"
