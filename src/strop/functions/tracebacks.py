"""Exception -> the part of its traceback that the author of a function can act on.

Frames of the interpreter, of libraries and of Strop are left out as long as one of the user's own remains.
"""

from __future__ import annotations

import traceback
from pathlib import Path

_OWN_PACKAGE = Path(__file__).resolve().parents[1]
_MAX_FRAMES = 20


def user_traceback(error: BaseException, root: Path) -> str:
    """Format `error` and what caused it, with the frames of files below `root`, paths relative to it."""
    formatted = traceback.TracebackException.from_exception(error)
    _trim(formatted, root.resolve(), seen=set())
    return "".join(formatted.format()).rstrip()


def where_raised(error: BaseException, root: Path) -> str | None:
    """The user's last frame as `path/file.py, line 12, in process`; None where no frame is his."""
    stack = _users_frames(traceback.extract_tb(error.__traceback__), root.resolve())
    if not stack:
        return None
    last = stack[-1]
    return f"{_relative(last.filename, root.resolve())}, line {last.lineno}, in {last.name}"


def _trim(formatted: traceback.TracebackException, root: Path, seen: set[int]) -> None:
    if id(formatted) in seen:
        return
    seen.add(id(formatted))
    frames = _users_frames(formatted.stack, root)[-_MAX_FRAMES:]
    formatted.stack = traceback.StackSummary.from_list(
        traceback.FrameSummary(
            _relative(frame.filename, root), frame.lineno, frame.name, lookup_line=False, line=frame.line
        )
        for frame in frames
    )
    nested = [formatted.__cause__, formatted.__context__, *(formatted.exceptions or ())]
    for inner in nested:
        if inner is not None:
            _trim(inner, root, seen)


def _users_frames(stack: traceback.StackSummary, root: Path) -> list[traceback.FrameSummary]:
    below_root = [frame for frame in stack if _is_below(frame.filename, root)]
    # A processor from an installed package has no frame below the root.
    return below_root or [frame for frame in stack if _is_foreign(frame.filename)]


def _is_below(filename: str, root: Path) -> bool:
    path = Path(filename)
    # `<frozen importlib._bootstrap>` is no path, but would resolve to one below the working folder.
    if filename.startswith("<frozen ") or "site-packages" in path.parts or path.is_relative_to(_OWN_PACKAGE):
        return False
    return path.is_relative_to(root) or path.resolve().is_relative_to(root)


def _is_foreign(filename: str) -> bool:
    return not filename.startswith("<frozen ") and not Path(filename).is_relative_to(_OWN_PACKAGE)


def _relative(filename: str, root: Path) -> str:
    path = Path(filename)
    if not path.is_relative_to(root):
        path = path.resolve()
    return str(path.relative_to(root)) if path.is_relative_to(root) else filename
