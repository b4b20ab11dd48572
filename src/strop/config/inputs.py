"""Job -> SHA-256 of what goes into it: data files and functions' code, as they are when the run starts.

A published model carries them, so that one can say later what it was trained on and by.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.config.job import JobConfig
from strop.data.dataset import Dataset

_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


def hash_inputs(config: JobConfig, *datasets: Dataset[Any] | None) -> dict[str, dict[str, str]]:
    """`data` by file name, as `datasets` were read; `code` by function: all Python of its folder."""
    read = {path: sha256 for one in datasets if one is not None for path, sha256 in one.hashes.items()}
    return {
        "data": {one.file_name: read[one.file_name] for one in config.datasets},
        "code": code_hashes(config),
    }


def code_hashes(config: JobConfig) -> dict[str, str]:
    """The hash of each function's code by its label; a preset has none."""
    written = [function for function in config.functions if function.preset is None]
    folders = {function.fcmodel.zipdir for function in written}
    code = {folder: code_hash(Path(folder)) for folder in folders}
    return {function.label: code[function.fcmodel.zipdir] for function in written}


def code_hash(folder: Path) -> str:
    """One hash of names and contents of the Python files below `folder`, not of environments."""
    whole = hashlib.sha256()
    for path in sorted(_python_files(folder)):
        whole.update(f"{path.relative_to(folder).as_posix()}\0{_sha256(path)}\n".encode())
    return whole.hexdigest()


def _python_files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not (Path(place, name) / "pyvenv.cfg").exists()
        ]
        yield from (Path(place, name) for name in files if name.endswith(".py"))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
