"""Folder of user code -> one zip, the same bytes for the same files. The folder is only read.

What is left out is told: caches, environments, data and tests as DashScope's SDK leaves them out, job files,
and whatever looks like a secret. Links are never followed.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from strop.errors import ConfigError, Problem, StoreError
from strop.locales import msg

MAX_BYTES = 200 * 1024**2
MAX_FILES = 20_000

EXCLUDED = [
    ".git",
    ".gitignore",
    ".DS_Store",
    ".vscode",
    ".Python",
    ".env",
    ".venv",
    ".idea",
    "__pycache__",
    "*.swp",
    "*.egg",
    "*.egg-info",
    "*.pyc",
    "*.md",
    "*.log",
    "*.tmp",
    "*.bak",
    "build",
    "develop-eggs",
    ".eggs",
    "test",
    "tests",
    "tmp",
    "temp",
    "data",
]
"""The contract's list, by name of a file or folder at any depth."""

EXCLUDED_TOO = ("node_modules", "venv", ".tox", ".*_cache", ".ipynb_checkpoints")
SECRETS = (
    ".env.*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "id_rsa*",
    "id_ed25519*",
    ".netrc",
    ".ssh",
    ".aws",
    ".dashscope",
)

_SECTION = re.compile(
    rb"""^(?:\xef\xbb\xbf)?["']?(functions|datasets|training|model)["']?[ \t]*:""", re.MULTILINE
)
_KEY = re.compile(rb"""\b(fcmodel|preset|entity_id|file_name|file_id|hyper_parameters)["']?[ \t]*:""")
"""One of them stands in every function, dataset or training; an agent's own settings may have a `model`."""

_LARGEST_JOB_FILE = 1024**2

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip can say; a real time would make equal code differ."""

_LEVEL = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A file or folder that does not go along, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """`content` is the zip; `sha256` of it is how the server knows it. Names are relative to the folder."""

    root: Path
    content: bytes
    sha256: str
    files: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


def pack(root: Path, extra_files: Sequence[Path] = ()) -> Bundle:
    """Zip a folder; `extra_files` come to the top of it.

    Raises:
        ConfigError: no such folder or file, nothing to pack, or more than the server takes.
        StoreError: a file cannot be read.
    """
    sources, left_out = survey(root, extra_files)
    try:
        content = _zip(sources)
    except OSError as error:
        raise StoreError(
            msg("the code below {root!r} cannot be read: {error}", root=str(root), error=error)
        ) from error
    if len(content) > MAX_BYTES:
        largest = sorted(sources.items(), key=lambda item: -item[1].stat().st_size)[:3]
        raise _refusal(
            root,
            f"packed it has {len(content) // 1024**2} MiB, at most {MAX_BYTES // 1024**2} MiB are taken",
            f"move the largest out: {', '.join(name for name, _ in largest)}",
        )
    return Bundle(
        root=root,
        content=content,
        sha256=hashlib.sha256(content).hexdigest(),
        files=tuple(sources),
        left_out=left_out,
    )


def survey(root: Path, extra_files: Sequence[Path] = ()) -> tuple[dict[str, Path], tuple[LeftOut, ...]]:
    """What would be packed, by name in order, and what would not."""
    if not root.is_dir():
        raise _refusal(root, "no such folder", "correct zipdir")
    left_out: list[LeftOut] = []
    sources = {path.relative_to(root).as_posix(): path for path in _walk(root, root, left_out)}
    for path in extra_files:
        if not path.is_file():
            raise _refusal(path, "no such file", "correct extra_files")
        if path.name in sources and sources[path.name].resolve() != path.resolve():
            raise _refusal(path, f"the folder has a file {path.name!r} already", "rename one of them")
        sources[path.name] = path
    if not sources:
        raise _refusal(root, "nothing to pack", "correct zipdir")
    if len(sources) > MAX_FILES:
        raise _refusal(
            root, f"{len(sources)} files, at most {MAX_FILES} are taken", "point zipdir at the code alone"
        )
    return dict(sorted(sources.items())), tuple(left_out)


def why_left_out(name: str) -> str | None:
    """The reason why a file or folder of this name does not go along, None where it does.

    >>> why_left_out("agent.py"), why_left_out(".env.local")
    (None, 'may hold secrets')
    """
    if any(fnmatchcase(name, pattern) for pattern in SECRETS):
        return "may hold secrets"
    pattern = next((one for one in (*EXCLUDED, *EXCLUDED_TOO) if fnmatchcase(name, one)), None)
    return None if pattern is None else f"matches {pattern}"


def is_job_file(path: Path) -> bool:
    """Whether a YAML file describes a job: no code of it, and another setting in it makes no other code."""
    try:
        if path.suffix not in (".yaml", ".yml") or path.stat().st_size > _LARGEST_JOB_FILE:
            return False
        content = path.read_bytes()
        return len(set(_SECTION.findall(content))) > 1 and _KEY.search(content) is not None
    except OSError:  # told when it is packed
        return False


def _walk(folder: Path, root: Path, left_out: list[LeftOut]) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise StoreError(
            msg(
                "the folder {folder!r} cannot be read: {value}",
                folder=str(folder),
                value=error.strerror or error,
            )
        ) from error
    for entry in entries:
        path = Path(entry.path)
        name = path.relative_to(root).as_posix()
        reason = why_left_out(entry.name)
        if reason is None and entry.is_symlink():
            reason = "is a link"
        elif reason is None and not entry.is_dir() and not entry.is_file():
            reason = "is neither a file nor a folder"
        elif reason is None and not entry.name.isprintable():
            reason = "its name has control characters"
        elif reason is None and entry.is_file() and is_job_file(path):
            reason = "is a job file: its runtime.env may hold secrets"
        if reason is not None:
            left_out.append(LeftOut(name=name, reason=reason))
        elif entry.is_dir():
            yield from _walk(path, root, left_out)
        else:
            yield path


def _zip(sources: dict[str, Path]) -> bytes:
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
            for name, path in sources.items():
                info = zipfile.ZipInfo(name, _EPOCH)
                info.compress_type = zipfile.ZIP_DEFLATED
                executable = bool(path.stat().st_mode & 0o100)
                info.external_attr = (0o100755 if executable else 0o100644) << 16
                info.create_system = 3
                archive.writestr(info, path.read_bytes())
                if file.tell() > MAX_BYTES:
                    break  # more of it changes nothing: it is refused
        file.seek(0)
        return file.read()


def _refusal(place: Path, message: str, fix: str) -> ConfigError:
    return ConfigError("function code", [Problem(place=str(place), message=message, fix=fix)])
