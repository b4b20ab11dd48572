"""Folder of a run -> proven writable and this process's alone; `--resume` -> the checkpoint to start from.

Both are checked before anything costly starts. The claim on a folder is a lock that goes with the process,
however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import typer

from strop.cli.text import t
from strop.data.half_characters import half_character
from strop.errors import CheckpointError, ConfigError, MissingError, Problem
from strop.locales import msg
from strop.store.home import home

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from strop.config.job import JobConfig
    from strop.learners.local.checkpoint import Found
    from strop.rl.trainer import RunResult


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
        raise typer.BadParameter(t("an empty text names no folder"))
    if (half := half_character(text)) is not None or "\0" in text:
        raise typer.BadParameter(f"{text!r}: {half or t('holds a NUL character')}")
    return Path(text)


class Earlier(StrEnum):
    """What becomes of checkpoints that lie in the folder already."""

    REFUSE = "refuse"
    """A new run takes no folder that holds another's: nobody could tell them apart afterwards."""
    KEEP = "keep"
    """The run continues with them."""
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
            "checkpoints cannot be written to {folder!r}: {value}",
            folder=str(folder),
            value=error.strerror or error,
        ),
        t("name a folder with --out that this user may write and that has room"),
    )


def _taken(folder: Path, holder: str) -> ConfigError:
    try:
        told = json.loads(holder)
        who = f"{told['job_id']} (process {told['pid']} on {told['host']})"
    except (ValueError, KeyError, TypeError):
        who = t("another run")
    return _problem(
        t("{folder!r} is in use by {who}", folder=str(folder), who=who),
        t("wait for it, end it, or choose another folder with --out"),
    )


def _used(folder: Path, found: Path) -> ConfigError:
    return _problem(
        t(
            "{folder!r} holds checkpoints of an earlier run, the newest {name}",
            folder=str(folder),
            name=found.name,
        ),
        t("resume it with --resume {folder}, or choose another folder with --out", folder=folder),
    )


def unusable_text(folder: Path, found: Found) -> tuple[str, str]:
    """What to say of a run's folder in which no checkpoint can be used, and what to do."""
    newest, error = found.unusable[0]
    return (
        t(
            "{folder!r} holds checkpoints of an earlier run, none of which can be used; {name}: {message}",
            folder=str(folder),
            name=newest.name,
            message=error.message,
        ),
        t(
            "{value}; to start over, choose another folder with --out",
            value=error.fix or msg("put the files back"),
        ),
    )


def _problem(message: str, fix: str) -> ConfigError:
    return ConfigError("--out", [Problem(place="--out", message=message, fix=fix)])


Row = TypeVar("Row")

AUTO = "auto"
"""Resume from the newest checkpoint of `--out`, or start where there is none: for supervisors that start a job
again whenever it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """`folder` is the run's, where it keeps its checkpoints; None: the checkpoint stands alone. Both are
    absolute."""

    checkpoint: Path
    folder: Path | None
    saved: dict[str, Any]

    @property
    def job_id(self) -> str:
        """Of the job that wrote it."""
        return str(self.saved["job_id"])

    def lies_in(self, folder: Path) -> bool:
        return self.checkpoint.parent == folder / CHECKPOINTS


def find_resumed(given: str, out: Path | None) -> Resumed | None:
    """The newest whole checkpoint that a user means by a run's folder, a checkpoint's folder, a job's id, or
    `auto`. None: `auto`, and there is nothing yet.

    Raises:
        ConfigError: there is none, or none that can be used; nothing has been loaded.
        CheckpointError: the one named is damaged.
    """
    from strop.learners.local.checkpoint import MANIFEST, find_checkpoints, verify_checkpoint

    if not given.strip():
        raise _resume_problem(
            t("an empty text names nothing"),
            t("give the folder of a run or a job's id"),
        )
    if given == AUTO:
        if out is None:
            raise _resume_problem(
                t("auto looks in the folder of --out, which is not given"),
                t("add --out FOLDER"),
            )
        found = find_checkpoints(out.absolute() / CHECKPOINTS)
        if found.newest is None and found.unusable:
            raise _resume_problem(*unusable_text(out, found))
        return None if found.newest is None else _resumed(found.newest, out)
    place = next((one for one in _places(given) if one is not None and _is_folder(one)), None)
    if place is None:
        raise _resume_problem(
            t("there is no folder or job {given!r}", given=given),
            t("give the folder of a run, of one of its checkpoints, or the id of a job"),
        )
    place = place.absolute()
    if (place / MANIFEST).is_file():
        verify_checkpoint(place)
        return _resumed(place, out)
    shelves = [find_checkpoints(place / CHECKPOINTS), find_checkpoints(place)]
    newest = next((one.newest for one in shelves if one.newest is not None), None)
    if newest is None and (spoilt := next((one for one in shelves if one.unusable), None)) is not None:
        raise _resume_problem(*unusable_text(place, spoilt))
    if newest is None:
        raise _resume_problem(
            t("{place!r} is not a checkpoint and holds no complete one", place=str(place)),
            t("give the folder of a run that has saved one; without --resume the job starts over"),
        )
    return _resumed(newest, out)


def _places(given: str) -> Iterator[Path | None]:
    """Where to look, in order: the folder itself, that which a job was given by --out, a job's own."""
    from strop.store.home import home

    yield Path(given)
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", given):
        yield _folder_of_job(given)
        yield home() / "jobs" / given


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # too long a name, or one that no system has
        return False


def _folder_of_job(job_id: str) -> Path | None:
    """The folder that a job keeps its checkpoints in, where that is not its own below the home."""
    from strop.store.submissions import get_submission

    local = of_the_store(lambda session: get_submission(session, job_id).local)
    return local.out if local is not None else None


def of_the_store(read: Callable[[Session], Row | None]) -> Row | None:
    """What `read` finds in this home's store; None where there is no such row, or no store yet."""
    from strop.store.database import database_url, open_database

    url = database_url()
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        return None
    database = open_database()
    try:
        with database.read() as session:
            return read(session)
    except MissingError:
        return None
    finally:
        database.close()


def _resumed(checkpoint: Path, out: Path | None) -> Resumed:
    from strop.learners.local.checkpoint import read_manifest

    shelf = checkpoint.parent
    own = shelf.parent if shelf.name == CHECKPOINTS else None
    saved = read_manifest(checkpoint).position
    if "job_id" not in saved:
        raise CheckpointError(
            t("{checkpoint!r} was not written by a training run of this version", checkpoint=str(checkpoint))
        )
    return Resumed(checkpoint=checkpoint, folder=out.absolute() if out else own, saved=saved)


def finished_result(config: JobConfig, resumed: Resumed, *, accept_changes: bool = False) -> RunResult | None:
    """What a run ended with that has nothing left to do; None where there is, and for offline trainings, whose
    rows are known only with the tokenizer.

    Raises:
        CheckpointError: the checkpoint is of another job, and what differs.
        DataError: training rows that cannot be read.
    """
    from strop.cli.checking import load_both, with_dtypes
    from strop.config.inputs import code_hashes
    from strop.config.notes import total_steps
    from strop.data.dataset import load_dataset
    from strop.rl.checkpoints import best_below, kept_in
    from strop.rl.train_state import saved_state, start_state
    from strop.rl.trainer import RunResult
    from strop.schema.job import JobStatus

    if config.training_type.offline:
        return None
    config = with_dtypes(config)
    hyper = config.hyper_parameters
    # Lengths need the tokenizer and are checked when it is loaded.
    training, validation = load_both(
        config,
        lambda path: load_dataset(path, max_prompt_length=1, prompt_length=lambda messages, tools: 0),
        id_of=lambda sample: sample.sample_id,
    )
    start = start_state(config, training, validation, code_hashes(config))
    position = saved_state(resumed.saved, start, accept_changes=accept_changes)
    reached = position.has_reached(hyper)
    through = (
        reached or position.step >= total_steps(hyper, len(training)) or position.epoch >= hyper.n_epochs
    )
    if not resumed.saved["published"] or not through:
        return None
    return RunResult(
        status=JobStatus.SUCCEEDED,
        steps=position.step,
        checkpoint=resumed.checkpoint,
        best=best_below(
            resumed.checkpoint.parent,
            kept_in(resumed.saved),
            lower_is_better=config.training_type.lower_is_better,
        ),
        validations=position.validations,
        sampled_tokens=position.sampled_tokens,
        trained_tokens=position.trained_tokens,
        already_finished=True,
        target_reached=reached,
    )


def _resume_problem(message: str, fix: str) -> ConfigError:
    return ConfigError("--resume", [Problem(place="--resume", message=message, fix=fix)])
