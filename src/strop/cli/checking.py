"""A job file -> its configuration, or all that is wrong with keys, paths, functions and rows, at once.

What `strop run` looks at before anything is started; `--dry-run` also loads the functions, as the run will.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.cli.flow import MAX_ROWS_TOLD
from strop.cli.text import t
from strop.config.file import KeyPath, dotted
from strop.config.loading import Inspected, inspect_job, read_with
from strop.data.reading import RowFiles
from strop.errors import DataError, FunctionError, Problem, RequestError
from strop.learners.model_names import complaint
from strop.service.code_check import check_class

if TYPE_CHECKING:
    from strop.config.job import FunctionConfig, JobConfig


def check_whole(
    job: Path,
    overrides: Mapping[str, Any],
    given_by: Mapping[str, str],
    *,
    load_functions: bool,
    rows: RowFiles | None = None,
) -> JobConfig:
    """The job, with the options of the command line. With `load_functions` each is loaded in a worker; else its
    file is only read. `rows` keeps what was read of datasets.

    Raises:
        ConfigError: everything that is wrong. DataError: only rows are. FunctionError: only functions do not
            load; each with the user's part of the traceback.
    """
    files = RowFiles() if rows is None else rows
    inspected = inspect_job(read_with(job, overrides, given_by=given_by), complaint, rows=files)
    bad_rows = _bad_rows(inspected, files)
    functions = _named_functions(inspected)
    refused = asyncio.run(_refused_at_load(inspected.config, functions)) if load_functions else {}
    wrong = {**_wrong_classes(functions, without=set(refused)), **refused}
    if bad_rows and not inspected.problems and not wrong:
        raise DataError(t("datasets", "数据集"), bad_rows)
    if refused and not inspected.problems and not bad_rows and set(wrong) == set(refused):
        raise FunctionError("\n".join(str(error) for error in refused.values()))
    places = {index: ("functions", index, "fcmodel", "classpath") for index in wrong}
    return inspected.checked(
        [
            *(_problem(inspected, places[index], error) for index, error in wrong.items()),
            *bad_rows[:MAX_ROWS_TOLD],
        ]
    )


def _problem(inspected: Inspected, path: KeyPath, error: FunctionError | RequestError) -> Problem:
    message = f"{dotted(path)}: {error.message}"
    return Problem(place=inspected.file.place(path), message=message, fix=error.fix)


def _bad_rows(inspected: Inspected, rows: RowFiles) -> list[Problem]:
    """Of every file that is there, lengths aside; of none while it is not clear what the rows are for."""
    if not all(inspected.trusted(path) for path in (("training", "type"), ("mode",))):
        return []
    files = [
        Path(dataset.file_name)
        for index, dataset in enumerate(inspected.config.datasets)
        if inspected.trusted(("datasets", index)) and os.path.isfile(dataset.file_name)
    ]
    return [one for file in files for one in rows.problems(file, inspected.config.training_type)]


def _named_functions(inspected: Inspected) -> dict[int, FunctionConfig]:
    """The functions of the file with nothing said against their keys and paths."""
    told = {one.message.partition(".")[0] for one in inspected.problems}
    return {
        index: function
        for index, function in enumerate(inspected.config.functions)
        if inspected.trusted(("functions", index)) and f"functions[{index}]" not in told
    }


def _wrong_classes(
    functions: Mapping[int, FunctionConfig], *, without: Iterable[int]
) -> dict[int, RequestError]:
    """Classes that are not in their files, as far as reading tells."""
    found: dict[int, RequestError] = {}
    for index, function in functions.items():
        file, colon, name = function.fcmodel.classpath.rpartition(":")
        if index in without or function.preset is not None or not colon:
            continue
        try:
            check_class(Path(function.fcmodel.zipdir), file, name)
        except RequestError as error:
            found[index] = error
    return found


async def _refused_at_load(
    config: JobConfig, functions: Mapping[int, FunctionConfig]
) -> dict[int, FunctionError]:
    """Load each in a worker, as the run will, and end the workers again."""
    from strop.workers.functions import FunctionPool

    async def load(function: FunctionConfig) -> FunctionError | None:
        root = Path(config.workspace_dir)
        try:
            async with FunctionPool([function], root=root, job_id="dry-run", on_line=lambda *_: None):
                return None
        except FunctionError as error:
            return error

    errors = await asyncio.gather(*(load(one) for one in functions.values()))
    return {index: error for index, error in zip(functions, errors, strict=True) if error is not None}
