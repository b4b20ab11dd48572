"""Learner + position -> a folder that is whole or not there: checkpoints on disk.

A checkpoint is written under a temporary name beside its own, every file is flushed to the disk, a manifest
with the hash of each goes in last, and one rename makes it appear. The folder itself is in Hugging Face
layout and can be given to `from_pretrained`; below `trainer/` lies what only a resumed run needs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError

from strop.errors import CheckpointError

MANIFEST = "manifest.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint is: `files` maps each path below the folder to its size and SHA-256.

    `position` is the caller's own: where in its data the run stood.
    """

    step: int
    policy_version: int
    position: dict[str, Any]
    files: dict[str, dict[str, Any]]
    format: int = _FORMAT


def write_checkpoint(
    folder: Path,
    write: Callable[[Path], None],
    *,
    step: int,
    policy_version: int,
    position: dict[str, Any] | None = None,
) -> Path:
    """Let `write` fill a new folder, then make it appear as `folder`, replacing an older one there.

    Side effects:
        Removes what an interrupted write of the same name left behind.
    Raises:
        CheckpointError: the position is not JSON, or the disk refused. Whatever else `write` raises passes
            through. In every case `folder` is as it was before.
    """
    try:
        return _write_whole(folder, write, step=step, policy_version=policy_version, position=position or {})
    except (OSError, SafetensorError) as error:  # safetensors has an exception of its own for a full disk
        raise CheckpointError(
            f"the checkpoint {str(folder)!r} cannot be written: {error}",
            fix="free some disk space there, or name another folder",
        ) from error


def _write_whole(
    folder: Path,
    write: Callable[[Path], None],
    *,
    step: int,
    policy_version: int,
    position: dict[str, Any],
) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    part, replaced = (folder.parent / f".{folder.name}.{kind}" for kind in ("part", "replaced"))
    _put_back(replaced, folder)
    for leftover in (part, replaced):
        shutil.rmtree(leftover, ignore_errors=True)
    part.mkdir()
    try:
        write(part)
        manifest = Manifest(
            step=step, policy_version=policy_version, position=position, files=_describe_all(part)
        )
        (part / MANIFEST).write_text(_as_json(manifest, folder))
        _sync_tree(part)
        if folder.exists():
            folder.rename(replaced)
        part.rename(folder)
    except BaseException:
        _put_back(replaced, folder)
        shutil.rmtree(part, ignore_errors=True)
        raise
    _sync(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)
    return folder


def _put_back(replaced: Path, folder: Path) -> None:
    """Undo the first of the two renames, where the second never came."""
    if replaced.exists() and not folder.exists():
        replaced.rename(folder)


def read_manifest(folder: Path) -> Manifest:
    """What the manifest says, without looking at the other files.

    Raises:
        CheckpointError: there is none, or it cannot be read.
    """
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text())
        if content["format"] != _FORMAT:
            raise CheckpointError(
                f"{str(path)!r} has format {content['format']!r}, this version reads {_FORMAT}",
                fix="resume with the version of strop that wrote it",
            )
        return Manifest(**content)
    except FileNotFoundError:
        raise CheckpointError(
            f"{str(folder)!r} is not a checkpoint: it has no {MANIFEST}",
            fix="give a folder that a run has written completely",
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{str(path)!r} cannot be read: {error}") from error


def verify_checkpoint(folder: Path) -> Manifest:
    """Compare every file with the manifest.

    Raises:
        CheckpointError: names the first file that is missing, of another size or of another content.
    """
    manifest = read_manifest(folder)
    for name, expected in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise _damaged(folder, f"{name!r} is missing")
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise _damaged(folder, f"{name!r} has {size} bytes, expected {expected['bytes']}")
        if _sha256(path) != expected["sha256"]:
            raise _damaged(folder, f"the content of {name!r} is not what was written")
    return manifest


def latest_checkpoint(root: Path) -> Path | None:
    """The whole checkpoint of the highest step directly below `root`; others are passed over."""
    found: list[tuple[int, Path]] = []
    for folder in root.iterdir() if root.is_dir() else ():
        if folder.name.startswith(".") or not (folder / MANIFEST).is_file():
            continue
        try:
            found.append((read_manifest(folder).step, folder))
        except CheckpointError:
            continue
    for _, folder in sorted(found, reverse=True):
        try:
            verify_checkpoint(folder)
        except CheckpointError:
            continue
        return folder
    return None


class Saves(Protocol):
    """What `Checkpoints` needs of a learner."""

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


class Checkpoints:
    """The checkpoints of one learner and of what learns beside it: all in one folder."""

    def __init__(self, learner: Saves, *beside: Saves) -> None:
        self._parts = (learner, *beside)

    def write(self, folder: Path, *, step: int, policy_version: int, position: dict[str, Any]) -> Path:
        def save(part_folder: Path) -> None:
            for part in self._parts:
                part.save(part_folder)

        return write_checkpoint(folder, save, step=step, policy_version=policy_version, position=position)

    def load(self, folder: Path) -> dict[str, Any]:
        """Verify, load the learner, and give the position back as it was written."""
        manifest = verify_checkpoint(folder)
        for part in self._parts:
            part.load(folder)
        return manifest.position


def _damaged(folder: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {str(folder)!r} is damaged: {what}",
        fix="resume from an older checkpoint, or copy this one again",
    )


def _as_json(manifest: Manifest, folder: Path) -> str:
    try:
        return json.dumps(asdict(manifest), indent=2, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"the position for {str(folder)!r} is not JSON: {error}") from error


def _describe_all(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in _files(folder)
    }


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.rglob("*") if path.is_file())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
