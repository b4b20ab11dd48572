"""The pipeline's checks -> the form in which the server asks for them: it may not know the pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strop.cli.row_lengths import too_long
from strop.config.describing import describe
from strop.config.file import JobFile, read_scalar
from strop.config.job import JobConfig, TrainingType
from strop.config.loading import check_job
from strop.data.reading import RowFiles
from strop.errors import ConfigError, DataError, Problem

MAX_ROWS_TOLD = 20
"""Beside other problems."""


class PipelineFlow:
    """Satisfies `service.flow.Flow`."""

    def check(self, job: dict[str, Any]) -> JobConfig:
        """As `strop run` checks a file, then every row, its length by the model's own tokenizer where that is here.

        Raises:
            ConfigError, DataError: everything that is wrong.
        """
        files = RowFiles()
        rows = _bad_rows(job, files)
        try:
            config = check_job(_as_file(job), rows=files)
        except DataError:  # the rows could not even be counted, which stands among their problems
            raise DataError("rows", rows) from None
        except ConfigError as error:
            if not rows:
                raise
            raise ConfigError(error.subject, [*error.problems, *rows[:MAX_ROWS_TOLD]]) from None
        problems = rows or _long_rows(config, files)
        if problems:
            raise DataError("rows", problems)
        return config

    def describe(self, config: JobConfig) -> dict[str, Any]:
        return describe(config)


def _bad_rows(job: dict[str, Any], files: RowFiles) -> list[Problem]:
    """Of every dataset, by the names that the client gave them."""
    try:
        form = TrainingType(job.get("training", {}).get("type", TrainingType.REINFORCEMENT))
    except ValueError:  # told as such
        return []
    paths = [Path(dataset["file_name"]) for dataset in job.get("datasets", [])]
    return [_named(problem, path) for path in paths for problem in files.problems(path, form)]


def _long_rows(config: JobConfig, files: RowFiles) -> list[Problem]:
    problems = too_long(config, files)
    for dataset in config.datasets:
        problems = [_named(problem, Path(dataset.file_name)) for problem in problems]
    return problems


def _as_file(job: dict[str, Any]) -> JobFile:
    """Clients write numbers as text, too; the file's own reading of a value makes numbers of them."""
    training: dict[str, Any] = job.get("training", {})
    hyper = {
        key: read_scalar(value) if isinstance(value, str) else value
        for key, value in training.get("hyper_parameters", {}).items()
    }
    # A request has no lines: every key stands at the same nameless place.
    return JobFile(
        path=Path("job"), data={**job, "training": {**training, "hyper_parameters": hyper}}, places={(): ""}
    )


def _named(problem: Problem, path: Path) -> Problem:
    """By the name that the client gave the file, not by where it lies here."""
    place = problem.place.replace(str(path), path.name)
    return Problem(place=place, message=problem.message, fix=problem.fix)
