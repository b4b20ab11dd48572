"""Folder of a run -> proven writable and this process's alone, before anything costly begins.

`cli.session` claims it first of all. The claim is a lock that goes with the process, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from strop.cli.text import t
from strop.data.half_characters import half_character
from strop.errors import ConfigError, Problem
from strop.store.home import home

if TYPE_CHECKING:
    from strop.cli.resume import Resumed
    from strop.learners.local.checkpoint import Found

CHECKPOINTS = "checkpoints"
_LOCK = ".lock"
_PROBE_BYTES = 4096


def named_folder(given: str | Path) -> Path:
    """A folder as an option, or an option's default, names it: nothing is no name, though a path makes the
    current folder of it.

    Raises:
        BadParameter: it names none.
    """
    text = str(given)
    if not text.strip():
        raise typer.BadParameter(t("an empty text names no folder", "空文本不是目录名"))
    if (half := half_character(text)) is not None or "\0" in text:
        raise typer.BadParameter(f"{text!r}: {half or t('holds a NUL character', '含有 NUL 字符')}")
    return Path(text)


class Earlier(StrEnum):
    """What becomes of checkpoints that lie in the folder already."""

    REFUSE = "refuse"
    """A new run takes no folder that holds another's: nobody could tell them apart afterwards."""
    KEEP = "keep"
    """The run goes on with them."""
    REMOVE = "remove"
    """The folder's content is the command's own, made anew each time."""


def claim_folder(
    stack: ExitStack,
    job_id: str,
    *,
    out: Path | None,
    resumed: Resumed | None,
    anew: bool,
    submitted: bool = False,
) -> Path:
    """The job's folder, this process's alone until `stack` closes: `out`, else that of the run `resumed`, else
    one below `STROP_HOME/jobs`. With `anew` checkpoints that lie there are removed. A `submitted` job's folder
    is its own, and its checkpoints stay.

    Raises:
        ConfigError: it cannot be written, or is another run's.
    """
    own = resumed.folder if resumed is not None else None
    folder = (out or own or home() / "jobs" / job_id).absolute()
    if submitted or (resumed is not None and resumed.lies_in(folder)):
        earlier = Earlier.KEEP
    else:
        earlier = Earlier.REMOVE if anew else Earlier.REFUSE
    stack.enter_context(claimed(folder, job_id=job_id, earlier=earlier))
    return folder


@contextmanager
def claimed(folder: Path, *, job_id: str, earlier: Earlier) -> Generator[None]:
    """Hold `folder` for a run while the block runs; make it where it is missing.

    Raises:
        ConfigError: it cannot be written, another process holds it, or it holds checkpoints of another run.
    Side effects:
        Removes what interrupted writes left there; at the end the folder itself, if nothing came into it.
    """
    try:
        lock = _locked(folder)
    except OSError as error:
        raise _refused(folder, error) from error
    with lock:
        try:
            _make_ready(folder, job_id, lock, earlier)
        except OSError as error:
            raise _refused(folder, error) from error
        try:
            yield
        finally:
            _remove_if_empty(folder)


def _make_ready(folder: Path, job_id: str, lock: TextIO, earlier: Earlier) -> None:
    from strop.learners.local.checkpoint import clear_leftovers, find_checkpoints

    shelf = folder / CHECKPOINTS
    shelf.mkdir(exist_ok=True)
    _prove_writable(shelf)
    lock.truncate(0)
    lock.write(json.dumps({"job_id": job_id, "pid": os.getpid(), "host": socket.gethostname()}))
    lock.flush()
    if earlier is Earlier.REMOVE:
        shutil.rmtree(shelf)
        shelf.mkdir()
    if earlier is Earlier.REFUSE:
        found = find_checkpoints(shelf)
        if found.newest is not None:
            raise _used(folder, found.newest)
        if found.unusable:
            raise _problem(*unusable_text(folder, found))
    clear_leftovers(shelf)


def _locked(folder: Path) -> TextIO:
    """The lock file, open and locked.

    Raises:
        ConfigError: another process holds it.
    """
    path = folder / _LOCK
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        lock = path.open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(lock.fileno())):
                return lock
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read()
            lock.close()
            raise _taken(folder, holder) from None
        lock.close()  # it was removed between the two calls, with the folder that nothing came into


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        (folder / CHECKPOINTS).rmdir()
        if [one.name for one in folder.iterdir()] == [_LOCK]:
            (folder / _LOCK).unlink()
            folder.rmdir()


def _prove_writable(shelf: Path) -> None:
    probe = shelf / ".probe"
    try:
        with probe.open("wb") as file:
            file.write(b"\0" * _PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    finally:
        probe.unlink(missing_ok=True)


def _refused(folder: Path, error: OSError) -> ConfigError:
    return _problem(
        t(
            f"checkpoints cannot be written to {str(folder)!r}: {error.strerror or error}",
            f"无法向 {str(folder)!r} 写入检查点：{error.strerror or error}",
        ),
        t(
            "name a folder with --out that this user may write and that has room",
            "请用 --out 指定一个可写且空间充足的目录",
        ),
    )


def _taken(folder: Path, holder: str) -> ConfigError:
    try:
        told = json.loads(holder)
        who = f"{told['job_id']} (process {told['pid']} on {told['host']})"
    except (ValueError, KeyError, TypeError):
        who = t("another run", "另一个任务")
    return _problem(
        t(f"{str(folder)!r} is in use by {who}", f"{str(folder)!r} 正被 {who} 使用"),
        t("wait for it, end it, or name another folder with --out", "请等待其结束，或用 --out 指定其他目录"),
    )


def _used(folder: Path, found: Path) -> ConfigError:
    return _problem(
        t(
            f"{str(folder)!r} holds checkpoints of an earlier run, the newest {found.name}",
            f"{str(folder)!r} 中已有先前任务的检查点，最新的是 {found.name}",
        ),
        t(
            f"go on with it by --resume {folder}, or name another folder with --out",
            f"用 --resume {folder} 继续该任务，或用 --out 指定其他目录",
        ),
    )


def unusable_text(folder: Path, found: Found) -> tuple[str, str]:
    """What to say of a run's folder in which no checkpoint can be used, and what to do."""
    newest, error = found.unusable[0]
    return (
        t(
            f"{str(folder)!r} holds checkpoints of an earlier run, none of which can be used; "
            f"{newest.name}: {error.message}",
            f"{str(folder)!r} 中有先前任务的检查点，但均无法使用；{newest.name}：{error.message}",
        ),
        t(
            f"{error.fix or 'put the files back'}; to begin anew, name another folder with --out",
            f"{error.fix or '请恢复这些文件'}；若要从头开始，请用 --out 指定其他目录",
        ),
    )


def _problem(message: str, fix: str) -> ConfigError:
    return ConfigError("--out", [Problem(place="--out", message=message, fix=fix)])
