"""`job.yaml` -> JobConfig that does what it says, or every problem at once with line, key and fix.

`cli` calls `load_job` before anything else is loaded. What is allowed but would surprise is for `job_notes`.
Reads the YAML and counts the training rows; runs and imports nothing.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.config.aliases import translate_aliases
from strop.config.describing import origins_of
from strop.config.file import JobFile, KeyPath, dotted, read_job_file
from strop.config.job import FunctionModel, JobConfig, TrainingType
from strop.config.keys import Checked, check_keys
from strop.config.overrides import apply_overrides
from strop.config.rules import complaints
from strop.data.reading import RowFiles
from strop.data.row_files import count_rows
from strop.errors import ConfigError, Problem
from strop.locales import msg

CheckModel = Callable[[str], tuple[str, str | None] | None]
"""A model's name -> what is wrong with it and the fix, or None. `cli` hands it in: it knows the models."""


def load_job(
    path: Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    given_by: Mapping[str, str] | None = None,
    check_model: CheckModel | None = None,
) -> JobConfig:
    """Read a job. `workspace_dir` is relative to the file, all other paths to that; they come back absolute.

    `overrides` win over the file: `{"training.hyper_parameters.max_steps": 5}`, or just `max_steps` where one
    section alone has the key. Text is read as YAML reads a value, so `"2e-6"` is a number. `given_by` says
    for an override's name which option of the command line it was. Ark's names are read as ours. The result
    knows where each of its values came from (`JobConfig.origins`).

    Raises:
        ConfigError: everything that is wrong, each with `file:line`, key and fix.

    """
    return inspect_job(read_with(path, overrides, given_by=given_by), check_model).checked()


def read_with(
    path: Path, overrides: Mapping[str, Any] | None = None, *, given_by: Mapping[str, str] | None = None
) -> JobFile:
    """What a file says, with the overrides of `load_job`.

    Raises:
        ConfigError: it cannot be read.
    """
    file = read_job_file(path)
    apply_overrides(file, overrides or {}, given_by or {})
    return file


def check_job(
    file: JobFile, check_model: CheckModel | None = None, *, rows: RowFiles | None = None
) -> JobConfig:
    """The configuration of a job that has been read, from a file or from a request. `rows` keeps its rows for
    whoever asks more of them; without it they are only counted.

    Raises:
        ConfigError: everything that is wrong, each with its place, key and fix.
    """
    return inspect_job(file, check_model, rows=rows).checked()


@dataclass(frozen=True, slots=True)
class Inspected:
    """A job with everything that is wrong with its keys and paths, so that more may be looked at beside them.

    `config` holds stand-ins where `trusted` denies a path. `problems` are in the file's order.
    """

    file: JobFile
    config: JobConfig
    trusted: Callable[[KeyPath], bool]
    problems: list[Problem]

    def checked(self, more: Iterable[Problem] = ()) -> JobConfig:
        """
        Raises:
            ConfigError: there are problems, or `more`.
        """
        problems = [*self.problems, *more]
        if problems:
            raise ConfigError(str(self.file.path), sorted(problems, key=_order))
        return self.config.with_origins(origins_of(self.config, self.file))


def inspect_job(
    file: JobFile, check_model: CheckModel | None = None, *, rows: RowFiles | None = None
) -> Inspected:
    """As `check_job`, with what is wrong beside the job.

    Raises:
        ConfigError: so much is wrong that there is no job to look at.
    """
    translate_aliases(file)
    checked = check_keys(file)
    config, file_problems = _with_absolute_paths(checked, file, check_model)
    problems = [
        *file.problems,
        *checked.problems,
        *file_problems,
        *_contradictions(checked, config, file, rows),
    ]
    return Inspected(file, config, checked.trusted, problems)


def _with_absolute_paths(
    checked: Checked, file: JobFile, check_model: CheckModel | None
) -> tuple[JobConfig, list[Problem]]:
    """Resolve every path of a configuration, and report those that lead nowhere."""
    config = checked.config
    problems: list[Problem] = []

    def missing(path: KeyPath, message: str, fix: str | None = None) -> None:
        if checked.trusted(path):
            text = f"{dotted(path)}: {message}"
            problems.append(Problem(place=file.place(path), message=text, fix=fix))

    workspace = _resolve(file.path.resolve().parent, config.workspace_dir)
    if not os.path.isdir(workspace):
        missing(("workspace_dir",), f"no such folder: {workspace}", "it is relative to the job file")
        return config, problems
    datasets = [
        dataset.model_copy(update={"file_name": str(_resolve(workspace, dataset.file_name))})
        for dataset in config.datasets
    ]
    for index, dataset in enumerate(datasets):
        if not os.path.isfile(dataset.file_name):
            missing(
                ("datasets", index, "file_name"),
                f"no such file: {dataset.file_name}",
                _near_file(dataset.file_name),
            )
    functions = [
        function.model_copy(
            update={
                "fcmodel": function.fcmodel.model_copy(
                    update={"zipdir": str(_resolve(workspace, function.fcmodel.zipdir))}
                )
            }
        )
        for function in config.functions
    ]
    for index, function in enumerate(functions):
        here: KeyPath = ("functions", index, "fcmodel")
        if not os.path.isdir(function.fcmodel.zipdir):
            missing(
                (*here, "zipdir"), f"no such folder: {function.fcmodel.zipdir}", "relative to workspace_dir"
            )
        elif complaint := _code_problem(function.fcmodel):
            missing((*here, "classpath"), *complaint)

    def named_model(path: KeyPath, name: str) -> str:
        if os.path.isdir(workspace / name):
            return str(_resolve(workspace, name))
        if name.startswith((".", "/", "~")) and not os.path.isdir(os.path.expanduser(name)):
            missing(path, f"no such folder: {_resolve(workspace, name)}", "it is relative to workspace_dir")
        elif check_model is not None and (wrong := check_model(name)) is not None:
            missing(path, *wrong)
        return name

    training = config.training
    if training.teacher_model is not None:
        teacher = named_model(("training", "teacher_model"), training.teacher_model)
        training = training.model_copy(update={"teacher_model": teacher})
    resolved = {
        "workspace_dir": str(workspace),
        "datasets": tuple(datasets),
        "functions": tuple(functions),
        "model": config.model.model_copy(update={"name": named_model(("model",), config.model.name)}),
        "training": training,
    }
    return config.model_copy(update=resolved), problems


def _resolve(workspace: Path, name: str) -> Path:
    return (workspace / os.path.expanduser(name)).resolve()


def _code_problem(code: FunctionModel) -> tuple[str, str | None] | None:
    """What is wrong with a class path, as far as files tell; nothing is imported."""
    form = "write path/file.py:Class or pkg.mod.Class"
    file_part, colon, name = code.classpath.rpartition(":")
    if colon:
        if not file_part.endswith(".py") or not name.isidentifier():
            return f"{code.classpath!r} names no class", form
        return None if os.path.isfile(Path(code.zipdir) / file_part) else _no_file(code, file_part)
    parts = code.classpath.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        return f"{code.classpath!r} names no class", form
    # The module may be installed instead; only where its first part lies in the workspace must the rest, too.
    module = Path(code.zipdir, *parts[:-1])
    if not Path(code.zipdir, parts[0]).is_dir() or module.is_dir() or module.with_suffix(".py").is_file():
        return None
    return _no_file(code, f"{'/'.join(parts[:-1])}.py")


def _no_file(code: FunctionModel, name: str) -> tuple[str, str | None]:
    return f"no such file: {Path(code.zipdir) / name}", "it is relative to zipdir, that to workspace_dir"


def _contradictions(
    checked: Checked, config: JobConfig, file: JobFile, rows: RowFiles | None
) -> Iterable[Problem]:
    """What the schema cannot see: keys against each other and against the number of rows."""
    # A row of plain text is cut into as many examples as it takes.
    num_rows = None if config.training_type is TrainingType.CPT else _num_rows(config, checked, rows)
    for one in complaints(config, num_rows):
        if all(checked.trusted(path) for path in (one.path, *one.given)):
            yield Problem(
                place=file.place(one.path),
                message=msg("{dotted}: {message}", dotted=dotted(one.path), message=one.message),
                fix=one.fix,
            )


def _num_rows(config: JobConfig, checked: Checked, rows: RowFiles | None) -> int | None:
    """Training rows of all files together; None where one of them is not there."""
    files = [
        (checked.trusted(("datasets", index)), Path(dataset.file_name))
        for index, dataset in enumerate(config.datasets)
        if dataset.type == "training"
    ]
    if not files or not all(trusted and os.path.isfile(path) for trusted, path in files):
        return None
    type_is_clear = checked.trusted(("training", "type")) and checked.trusted(("mode",))
    if rows is None or not type_is_clear:
        return sum(count_rows(path) for _, path in files)
    return sum(rows.num_rows(path, config.training_type) for _, path in files)


def _near_file(path: str) -> str:
    """The nearest file in the same folder, as a question; else what to do."""
    folder, name = os.path.split(path)
    try:
        there = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except (OSError, ValueError):
        return "write the rows there"
    near = difflib.get_close_matches(name, there, n=1, cutoff=0.75)
    return f"did you mean {near[0]!r}?" if near else "write the rows there"


def _order(problem: Problem) -> tuple[str, int]:
    """By file, then line."""
    name, _, line = problem.place.rpartition(":")
    return (name, int(line)) if line.isdigit() else (problem.place, 0)
