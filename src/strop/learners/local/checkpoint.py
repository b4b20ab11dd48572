"""Learner + position -> a folder that is whole or not there: checkpoints on disk.

A checkpoint is written under a temporary name beside its own, every file is flushed to the disk, a manifest
with the hash of each goes in last, and one rename makes it appear. The folder itself is in Hugging Face
layout and can be given to `from_pretrained`; below `trainer/` lies what only a resumed run needs.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError

from strop.errors import CheckpointError
from strop.locales import msg

MANIFEST = "manifest.json"
_FORMAT = 2
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NAMED, _HIDDEN, _PART, _REPLACED = "step-", ".", ".part", ".replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint is: `files` maps each path below the folder to its size and SHA-256.

    `position` is the caller's own: where in its data the run stood. In the file `sha256` stands beside these,
    of all of them: nobody edits a manifest unseen.
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
            msg("the checkpoint {folder!r} cannot be written: {error}", folder=str(folder), error=error),
            fix=msg("free some disk space there, or name another folder"),
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
    part, replaced = (folder.parent / f"{_HIDDEN}{folder.name}{kind}" for kind in (_PART, _REPLACED))
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
        _appear(part, folder, replaced)
    except BaseException:
        _put_back(replaced, folder)
        shutil.rmtree(part, ignore_errors=True)
        raise
    _sync(folder.parent)
    for leftover in (part, replaced):  # the older one is in either, by the way it was replaced
        shutil.rmtree(leftover, ignore_errors=True)
    return folder


def _appear(part: Path, folder: Path, replaced: Path) -> None:
    """Give `part` the name `folder`. An older one there swaps names with it in one step where the kernel can;
    elsewhere it goes aside first, and `latest_checkpoint` looks for it there."""
    if folder.exists():
        if _exchange(part, folder):
            return
        folder.rename(replaced)
    part.rename(folder)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names at once. False where the system or the file system has no call for it."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    return rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


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
                msg(
                    "{path!r} has format {content!r}, this version reads {format}",
                    path=str(path),
                    content=content["format"],
                    format=_FORMAT,
                ),
                fix=msg("resume with the version of strop that wrote it"),
            )
        if content.pop("sha256", None) != _seal(content):
            raise CheckpointError(
                msg("{path!r} is not as it was written: somebody edited it, or the disk did", path=str(path)),
                fix=msg("put the original back, or resume from another checkpoint"),
            )
        return Manifest(**content)
    except FileNotFoundError:
        raise CheckpointError(
            msg(
                "{folder!r} is not a checkpoint: it has no {manifest}", folder=str(folder), manifest=MANIFEST
            ),
            fix=msg("give a folder that a run has written completely"),
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        text = f"{str(path)!r} cannot be read: {type(error).__name__}: {error}"
        raise CheckpointError(
            text, fix=msg("put the original back, or resume from another checkpoint")
        ) from error


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


@dataclass(frozen=True, slots=True)
class Found:
    """The newest whole checkpoint of a folder, and those beyond it that cannot be used, with the reason."""

    newest: Path | None
    unusable: tuple[tuple[Path, CheckpointError], ...]


def find_checkpoints(root: Path, *, beyond: int = -1) -> Found:
    """The whole checkpoint of the highest step directly below `root`, by the names that runs give (`step-`);
    only of steps `beyond` one.

    One that was set aside for a newer one of its name, which then never came, is found under its hidden name.
    """
    there = [folder for folder in (root.iterdir() if root.is_dir() else ()) if _is_named(folder)]
    unusable: list[tuple[Path, CheckpointError]] = []
    for folder in sorted(there, key=_step_by_name, reverse=True):
        numbered = _step_by_name(folder)[0] >= 0 and folder.is_dir() and any(folder.iterdir())
        if beyond >= 0 and _step_by_name(folder)[0] <= beyond:
            break
        if not numbered and not (folder / MANIFEST).is_file():
            continue  # nobody's checkpoint
        try:
            verify_checkpoint(folder)
        except CheckpointError as error:
            unusable.append((folder, error))
            continue
        return Found(folder, tuple(unusable))
    return Found(None, tuple(unusable))


def latest_checkpoint(root: Path) -> Path | None:
    """The newest whole one of `find_checkpoints`."""
    return find_checkpoints(root).newest


def clear_leftovers(root: Path) -> None:
    """Remove what interrupted writes and removals left directly below `root`. Only for who has it alone."""
    for folder in root.iterdir() if root.is_dir() else ():
        if folder.name.startswith(_HIDDEN) and folder.is_dir() and not _is_named(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_named(folder: Path) -> bool:
    """Whether this is the name of a checkpoint, or of the only one left of its name."""
    hidden = folder.name.startswith(_HIDDEN) and folder.name.endswith(_REPLACED)
    name = folder.name.removeprefix(_HIDDEN).removesuffix(_REPLACED) if hidden else folder.name
    return name.startswith(_NAMED) and not (hidden and (folder.parent / name).exists())


def _step_by_name(folder: Path) -> tuple[int, str]:
    step = folder.name.removeprefix(_HIDDEN).removeprefix(_NAMED).removesuffix(_REPLACED)
    return int(step) if step.isdecimal() else -1, folder.name


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

    def load(
        self, folder: Path, belongs: Callable[[Mapping[str, Any]], None] = lambda position: None
    ) -> dict[str, Any]:
        """Verify, let `belongs` refuse the position, load the learner, and give the position back as it was
        written."""
        manifest = verify_checkpoint(folder)
        belongs(manifest.position)
        for part in self._parts:
            part.load(folder)
        return manifest.position


def _damaged(folder: Path, what: str) -> CheckpointError:
    return CheckpointError(
        msg("checkpoint {folder!r} is damaged: {what}", folder=str(folder), what=what),
        fix=msg("resume from an older checkpoint, or copy this one again"),
    )


def _as_json(manifest: Manifest, folder: Path) -> str:
    try:
        content = json.loads(json.dumps(asdict(manifest), allow_nan=False))
        return json.dumps({**content, "sha256": _seal(content)}, indent=2, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            msg("the position for {folder!r} is not JSON: {error}", folder=str(folder), error=error)
        ) from error


def _seal(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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
