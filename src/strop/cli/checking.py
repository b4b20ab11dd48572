"""A job -> its configuration, or all that is wrong with keys, paths, functions and rows, at once.

For a file that `strop run` is given and for a job that a server is sent. Loads no torch.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.table import Table

from strop.cli.text import t, told
from strop.config.describing import describe, told_origin
from strop.config.file import JobFile, KeyPath, dotted, read_scalar
from strop.config.hyper_parameters import effective_keys
from strop.config.job import JobConfig, TrainingType
from strop.config.loading import Inspected, check_job, inspect_job, read_with
from strop.config.notes import notes
from strop.data.dataset import Dataset, dataset_of, joined, overlap_notes
from strop.data.reading import RowFiles
from strop.errors import ConfigError, DataError, FunctionError, ModelError, Problem, RequestError
from strop.learners.model_names import complaint
from strop.locales import msg, plural
from strop.processor import has_fast_bfloat16
from strop.schema.sample import Sample
from strop.service.code_check import check_class

if TYPE_CHECKING:
    from strop.cli.next_steps import RunCommand
    from strop.config.job import FunctionConfig, JobConfig
    from strop.inference.chat.answers import TextTokens


Item = TypeVar("Item")


def with_dtypes(config: JobConfig) -> JobConfig:
    """Put the processor's fastest dtype where the job says `auto`, so that the record holds what was used."""
    hyper = config.hyper_parameters
    fastest = "bfloat16" if has_fast_bfloat16() else "float32"
    known = effective_keys(config.training_type)
    auto = [
        name for name in ("train_dtype", "sampling_dtype") if name in known and getattr(hyper, name) == "auto"
    ]
    chosen = dict.fromkeys(auto, fastest)
    training = config.training.model_copy(update={"hyper_parameters": hyper.model_copy(update=chosen)})
    origins = {f"training.hyper_parameters.{name}": "this machine" for name in auto}
    resolved = config.model_copy(update={"training": training})
    return resolved.with_origins(origins) if config.origins else resolved


def load_both(
    config: JobConfig, load: Callable[[Path], Dataset[Item]], *, id_of: Callable[[Item], str]
) -> tuple[Dataset[Item], Dataset[Item] | None]:
    """The job's training and validation files through `load`, every bad row of all of them in one error."""
    loaded: dict[str, list[Dataset[Item]]] = {}
    problems: list[Problem] = []
    for dataset in config.datasets:
        try:
            loaded.setdefault(dataset.type, []).append(load(Path(dataset.file_name)))
        except DataError as error:
            problems += error.problems
    if problems:
        raise DataError(t("datasets"), problems)
    held_out = loaded.get("validation")
    return (
        joined(loaded["training"], id_of=id_of),
        joined(held_out, id_of=id_of) if held_out is not None else None,
    )


_one_at_a_time = threading.Lock()
"""Tokenizers of the hub are not made for several threads, and several rows at once are no faster."""


def prompt_counter(folder: Path) -> Callable[[Any, Any], int]:
    """Tokens of a prompt, as the tokenizer and the template in a model's folder have them.

    Raises:
        ModelError: the tokenizer cannot be loaded.
    """
    from strop.inference.chat.render import Renderer

    renderer = Renderer(_tokenizer(folder))
    return lambda messages, tools: len(renderer.prompt(messages, tools).token_ids)


def text_tokens(folder: Path) -> TextTokens:
    """Messages as token ids, as an offline training has them. Raises `ModelError` as `prompt_counter` does."""
    from transformers import GenerationConfig

    from strop.inference.chat.answers import TextTokens

    tokenizer = _tokenizer(folder)
    named: Any = None
    if (folder / "generation_config.json").is_file():
        named = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
    ends = named if isinstance(named, list) else [named]
    return TextTokens(
        tokenizer, end_ids={one for one in (*ends, tokenizer.eos_token_id) if isinstance(one, int)}
    )


def too_long(config: JobConfig, rows: RowFiles | None = None) -> list[Problem]:
    """Every row of a checked job that is longer than the job allows; none where the model is not here yet,
    or is one that cannot be loaded, which its trainer tells.

    Concurrency:
        One call at a time counts; others wait.
    """
    from strop.learners.model_names import folder_here

    folder = folder_here(config.model.name)
    if folder is None:
        return []
    problems: list[Problem] = []
    with _one_at_a_time:
        try:
            check = _checker(config, folder, RowFiles() if rows is None else rows)
        except ModelError:
            return []
        for dataset in config.datasets:
            try:
                check(Path(dataset.file_name))
            except DataError as error:
                problems += error.problems
    return problems


def _checker(config: JobConfig, folder: Path, rows: RowFiles) -> Callable[[Path], object]:
    from strop.data.dataset import dataset_of
    from strop.data.examples import examples_of

    hyper, form = config.hyper_parameters, config.training_type
    if form.offline:
        tokens = text_tokens(folder)
        return lambda path: examples_of(rows.offline(path, form), max_length=hyper.max_length, tokens=tokens)
    count, limit = prompt_counter(folder), hyper.max_prompt_length
    return lambda path: dataset_of(rows.samples(path), max_prompt_length=limit, prompt_length=count)


def _tokenizer(folder: Path) -> Any:
    files = (folder / name for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"))
    stamp = tuple(path.stat().st_mtime_ns for path in files if path.is_file())
    return _loaded(folder, stamp)


@lru_cache(maxsize=4)
def _loaded(folder: Path, _stamp: tuple[int, ...]) -> Any:
    from transformers import AutoTokenizer
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # of files that hold anything
        raise ModelError(
            msg("the tokenizer in {folder!r} cannot be loaded: {error}", folder=str(folder), error=error)
        ) from error
    finally:
        logging.set_verbosity(verbosity)


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
    bad_rows = _rows_of_files(inspected, files)
    functions = _named_functions(inspected)
    refused = asyncio.run(_refused_at_load(inspected.config, functions)) if load_functions else {}
    wrong = {**_wrong_classes(functions, without=set(refused)), **refused}
    if bad_rows and not inspected.problems and not wrong:
        raise DataError(t("datasets"), bad_rows)
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


def _rows_of_files(inspected: Inspected, rows: RowFiles) -> list[Problem]:
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


_PIPE_WIDTH = 200


def say_ok(config: JobConfig, command: RunCommand, rows_of: RowFiles) -> None:
    """The last lines: what the run will note, that all is well, what was looked at, and the command that trains."""
    for note in notes_of(config, rows_of):
        print(f"{t('note')}  {told(note)}")
    rows = {kind: _num_rows(config, rows_of, kind) for kind in ("training", "validation")}
    number = len(config.functions)
    loaded = told(plural("{count} function loaded", "{count} functions loaded", count=number))
    looked = [
        t("{rows} training rows", rows=rows["training"]),
        *([t("{rows} validation rows", rows=rows["validation"])] if rows["validation"] else []),
        *([loaded] if number else []),
    ]
    print(t("ok: ") + t(", ").join(looked))
    print(t("next: ") + command.text())


def notes_of(config: JobConfig, rows_of: RowFiles) -> list[str]:
    """What a run notes before its first step, as far as it is known without the model's tokenizer."""
    if config.training_type.offline:
        return [*notes(config, num_samples=_num_rows(config, rows_of, "training"))]

    def load(path: Path) -> Dataset[Sample]:
        return dataset_of(rows_of.samples(path), max_prompt_length=1, prompt_length=lambda messages, tools: 0)

    training, validation = load_both(config, load, id_of=lambda sample: sample.sample_id)
    found = [*notes(config, num_samples=len(training)), *training.notes]
    if validation is not None:
        found += [*validation.notes, *overlap_notes(training, validation)]
    return found


def _num_rows(config: JobConfig, rows_of: RowFiles, kind: str) -> int:
    form = config.training_type
    return sum(rows_of.num_rows(Path(one.file_name), form) for one in config.datasets if one.type == kind)


def print_resolved(config: JobConfig, *, as_json: bool) -> None:
    """Every value as the run would use it, with its origin. A pipe gets whole lines, however long."""
    described = describe(config)
    if as_json:
        print(json.dumps(described, indent=2, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in (t("key"), t("value"), t("from")):
        table.add_column(title, overflow="fold")
    for key, origin in described["origins"].items():
        if key.startswith("training.resources.") and origin == "default":
            continue  # a cloud's words, which choose nothing here
        value = value_at(described, key)
        shown = "-" if value is None else value if isinstance(value, str) else json.dumps(value)
        style = "dim" if origin.startswith("default") else ""
        table.add_row(
            key.removeprefix("training.hyper_parameters."), shown, told(told_origin(origin)), style=style
        )
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, _PIPE_WIDTH)
    console.print(table)


def value_at(described: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key, as `functions[0].timeout`."""
    value: Any = described
    for part in key.replace("[", ".").replace("]", "").split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value
