"""`--resume` -> the checkpoint to go on from, checked against the job before any model loads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from strop.cli.run_folder import CHECKPOINTS, unusable_text
from strop.cli.text import t
from strop.errors import CheckpointError, ConfigError, MissingError, Problem

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from strop.config.job import JobConfig
    from strop.rl.trainer import RunResult

Found = TypeVar("Found")

AUTO = "auto"
"""Go on from the newest checkpoint of `--out`, or begin where there is none: for who starts a job again
whenever it has ended."""


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
        raise _problem(
            t("an empty text names nothing", "空文本不代表任何对象"),
            t("give the folder of a run or a job's id", "请给出任务目录或任务 id"),
        )
    if given == AUTO:
        if out is None:
            raise _problem(
                t("auto looks in the folder of --out, which is not given", "auto 需要同时给出 --out"),
                t("add --out FOLDER", "请加上 --out 目录"),
            )
        found = find_checkpoints(out.absolute() / CHECKPOINTS)
        if found.newest is None and found.unusable:
            raise _problem(*unusable_text(out, found))
        return None if found.newest is None else _resumed(found.newest, out)
    place = next((one for one in _places(given) if one is not None and _is_folder(one)), None)
    if place is None:
        raise _problem(
            t(
                f"there is no folder {given!r}, nor a job of that id",
                f"找不到目录 {given!r}，也没有此 id 的任务",
            ),
            t(
                "give the folder of a run, of one of its checkpoints, or the id of a job",
                "请给出任务目录、检查点目录或任务 id",
            ),
        )
    place = place.absolute()
    if (place / MANIFEST).is_file():
        verify_checkpoint(place)
        return _resumed(place, out)
    shelves = [find_checkpoints(place / CHECKPOINTS), find_checkpoints(place)]
    newest = next((one.newest for one in shelves if one.newest is not None), None)
    if newest is None and (spoilt := next((one for one in shelves if one.unusable), None)) is not None:
        raise _problem(*unusable_text(place, spoilt))
    if newest is None:
        raise _problem(
            t(
                f"{str(place)!r} holds no whole checkpoint, nor is it one",
                f"{str(place)!r} 不是检查点，其中也没有完整的检查点",
            ),
            t(
                "give the folder of a run that has saved one; without --resume the job begins anew",
                "请给出已保存检查点的任务目录；不加 --resume 则从头开始",
            ),
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


def of_the_store(read: Callable[[Session], Found | None]) -> Found | None:
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
            t(
                f"{str(checkpoint)!r} was not written by a training run of this version",
                f"{str(checkpoint)!r} 不是由此版本的训练任务写入的",
            )
        )
    return Resumed(checkpoint=checkpoint, folder=out.absolute() if out else own, saved=saved)


def finished_result(config: JobConfig, resumed: Resumed, *, accept_changes: bool = False) -> RunResult | None:
    """What a run ended with that has nothing left to do; None where there is, and for offline trainings, whose
    rows are known only with the tokenizer.

    Raises:
        CheckpointError: the checkpoint is of another job, and what differs.
        DataError: training rows that cannot be read.
    """
    from strop.cli.job_on_this_machine import load_both, with_dtypes
    from strop.config.inputs import code_hashes
    from strop.config.notes import total_steps
    from strop.data.dataset import load_dataset
    from strop.rl.checkpoints import best_below, kept_in
    from strop.rl.train_state import saved_position, start_position
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
    start = start_position(config, training, validation, code_hashes(config))
    position = saved_position(resumed.saved, start, accept_changes=accept_changes)
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


def _problem(message: str, fix: str) -> ConfigError:
    return ConfigError("--resume", [Problem(place="--resume", message=message, fix=fix)])
