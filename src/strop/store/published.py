"""A checkpoint -> a published model: a name whose weights never change, with where they came from.

The files are linked into `STROP_HOME/models/NAME` with `lineage.json` beside them, and appear by one rename;
the row in the store is made from that. Used by the run that ends, by `strop models publish` and by the API.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from strop.errors import CheckpointError, ConflictError, ModelError
from strop.locales import msg
from strop.schema.job import Checkpoint, Job
from strop.schema.model import Lineage, ModelKind, NamedModel
from strop.store.checkpoints import best_checkpoint, mark_published
from strop.store.database import Database
from strop.store.events import list_events
from strop.store.jobs import get_job
from strop.store.model_folder import check_name, models_folder, published_folder
from strop.store.models import find_model, record_model, taken

LINEAGE = "lineage.json"
INPUTS_EVENT = "inputs"
"""Kind of the event in which a run says the hashes of its data and code: `{"data": {}, "code": {}}`."""

_MANIFEST, _TRAINER = "manifest.json", "trainer/"


def check_free(session: Session, name: str) -> None:
    """Refuse the name that a job wants for its model before any work is spent.

    Raises:
        ModelError: 400 for what cannot name a model. ConflictError: the name is taken.
    """
    check_name(name)
    if find_model(session, name) is not None:
        raise taken(name)


def choose_checkpoint(job: Job, checkpoints: Sequence[Checkpoint], which: str) -> Checkpoint:
    """`last`, `best` (by validation; of equals the newest), a step's number or a checkpoint's id.

    Raises:
        CheckpointError: nothing fits; says what there is.
    """
    if which == "best":
        best = best_checkpoint(job, checkpoints)
        if best is not None:
            return best
    elif which == "last" and checkpoints:
        return max(checkpoints, key=lambda one: one.step)
    for one in checkpoints:
        if which in (one.checkpoint_id, str(one.step)):
            return one
    there = ", ".join(str(one.step) for one in checkpoints) or "none"
    hint = "none was validated; " if which == "best" and checkpoints else ""
    error = CheckpointError(
        msg(
            "no checkpoint {which!r}: {hint}steps with a checkpoint: {there}",
            which=which,
            hint=hint,
            there=there,
        )
    )
    error.http_status = 404
    raise error


def publish_checkpoint(
    database: Database, checkpoint: Checkpoint, name: str, *, next_free: bool = False
) -> NamedModel:
    """Make the checkpoint's model `name`; the optimizer stays behind.

    A name never changes what it stands for. Publishing the same weights again gives the model that is there;
    for others a taken name is refused, or with `next_free` becomes `NAME-v2`, `NAME-v3` ...

    Raises:
        ModelError: not a name, or the checkpoint's folder has gone. ConflictError: the name is taken.
    Side effects:
        Links the files into `STROP_HOME/models/NAME`, or copies where links cannot be made.
    Concurrency:
        Any number of processes may publish; a lock a name makes them take turns.
    """
    check_name(name)
    lineage = _lineage(database, checkpoint)
    for version in itertools.count(1):
        candidate = name if version == 1 else f"{name}-v{version}"
        check_name(candidate)
        try:
            return _publish(database, checkpoint, candidate, lineage)
        except ConflictError:
            if not next_free:
                raise
    raise AssertionError("counting does not end")


def remove_published(name: str) -> None:
    """Take a published model's folder away, its name first, so that no reader meets half of it."""
    folder = published_folder(name)
    if folder is None:
        return
    with _lock(name):
        if folder.is_dir():
            leaving = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
            folder.rename(leaving / "old")
            shutil.rmtree(leaving)


def _publish(database: Database, checkpoint: Checkpoint, name: str, lineage: Lineage) -> NamedModel:
    models_folder().mkdir(parents=True, exist_ok=True)
    with _lock(name):
        with database.read() as session:
            found = find_model(session, name)
            workspace_id = get_job(session, checkpoint.job_id).workspace_id
        if found is not None:
            if found.lineage is not None and _same(found.lineage, lineage):
                return found
            raise taken(name)
        target = models_folder() / name
        if not target.exists():
            _link_all(checkpoint.folder, target, lineage)
        elif not _same(
            _lineage_in(target), lineage
        ):  # else: linked by one that died before the row was written
            raise taken(name)
        model = NamedModel(
            name=name,
            kind=ModelKind.PUBLISHED,
            source=str(target),
            workspace_id=workspace_id,
            lineage=lineage,
            created_at=datetime.now(UTC),
        )
        with database.write() as session:
            record_model(session, model)
            mark_published(session, checkpoint.checkpoint_id)
    return model


def _same(one: Lineage | None, other: Lineage) -> bool:
    return one is not None and (one.digest, one.job_id, one.step) == (other.digest, other.job_id, other.step)


def _lineage(database: Database, checkpoint: Checkpoint) -> Lineage:
    files = _files(checkpoint.folder)
    manifest = _manifest(checkpoint.folder)
    known: dict[str, Any] = manifest.get("files", {})
    hashes = {
        name: str(known[name]["sha256"]) if name in known else _sha256(path) for name, path in files.items()
    }
    with database.read() as session:
        job = get_job(session, checkpoint.job_id)
        told = list_events(session, checkpoint.job_id, kind=INPUTS_EVENT).items
    inputs: dict[str, Any] = told[-1].data if told else {}
    return Lineage(
        job_id=checkpoint.job_id,
        step=checkpoint.step,
        checkpoint_id=checkpoint.checkpoint_id,
        policy_version=checkpoint.policy_version,
        validation=checkpoint.validation,
        base_model=job.model,
        data=inputs.get("data", {}),
        code=inputs.get("code", {}),
        config=job.config,
        digest=hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest(),
        files=hashes,
    )


def _files(folder: Path) -> dict[str, Path]:
    """What belongs to the model, by name: all but the manifest and what only a resumed run needs."""
    if not (folder / "config.json").is_file():
        raise ModelError(
            msg("the checkpoint's folder {folder!r} is not there or holds no model", folder=str(folder)),
            fix=msg("publish a checkpoint that is still on disk"),
        )
    files = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    return {
        name: path
        for name, path in files.items()
        if name != _MANIFEST and not name.startswith((_TRAINER, "."))
    }


def _link_all(folder: Path, target: Path, lineage: Lineage) -> None:
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        (work / "new").mkdir()
        for name, path in _files(folder).items():
            (work / "new" / name).parent.mkdir(parents=True, exist_ok=True)
            _link(path, work / "new" / name)
        text = json.dumps(lineage.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
        (work / "new" / LINEAGE).write_text(text, encoding="utf-8")
        _sync(work / "new" / LINEAGE)
        _sync(work / "new")
        (work / "new").rename(target)
        _sync(target.parent)
    finally:
        shutil.rmtree(work)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)
        _sync(target)


def _lineage_in(folder: Path) -> Lineage | None:
    try:
        return Lineage.model_validate_json((folder / LINEAGE).read_bytes())
    except (OSError, ValueError):
        return None


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / _MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _lock(name: str) -> Generator[None]:
    with (models_folder() / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released with the file, also when the process dies
        yield
