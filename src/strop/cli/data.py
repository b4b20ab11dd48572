"""`strop data check`: everything that is wrong with a file of rows, how long its prompts are, and for files that are
learned from as they are, what they teach. Sends nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from strop.cli.remote import AsJson, print_json, print_table
from strop.cli.text import t, told
from strop.config.job import TrainingType
from strop.errors import DataError, Problem
from strop.locales import msg

if TYPE_CHECKING:
    from strop.data.dataset import Dataset
    from strop.inference.chat.answers import TextTokens
    from strop.schema.example import Example


app = typer.Typer(no_args_is_help=True)

_QUANTILES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
_NO_LIMIT = 2**31


@app.command(
    "check",
    help=t(
        "Check every row of FILE and summarise the lengths of its prompts. Exit status: 0 good, 2 bad rows."
    ),
)
def check(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help=t("JSON lines, also gzip, or Parquet."),
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(help=t("Count tokens as this model does.")),
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option(help=t("Check these, too, and whether both have the same prompts.")),
    ] = None,
    max_prompt_length: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=t("Longer prompts are bad rows; needs --model."),
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help=t("Fewer rows than this are an error.")),
    ] = None,
    form: Annotated[
        TrainingType,
        typer.Option(
            "--type",
            help=t("What the rows are for; sft, dpo and cpt learn from them as they are."),
        ),
    ] = TrainingType.REINFORCEMENT,
    max_length: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=t("Longer rows are bad; with sft and dpo, needs --model."),
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    for name, given in (("--max-prompt-length", max_prompt_length), ("--max-length", max_length)):
        if given is not None and model is None:
            raise typer.BadParameter(t("needs --model"), param_hint=name)
    wrong = ("--max-prompt-length", max_prompt_length) if form.offline else ("--max-length", max_length)
    if wrong[1] is not None:
        text = t("means nothing for --type {value}", value=form.value)
        raise typer.BadParameter(text, param_hint=wrong[0])
    if form.offline:
        _check_offline(
            [file, *([validation] if validation else [])], form, model, max_length, batch_size, as_json
        )
        return
    count = _counter(model) if model is not None else None
    checked, problems = _checked([file, *([validation] if validation else [])], count, max_prompt_length)
    if batch_size is not None and file in checked and len(checked[file][0]) < batch_size:
        rows = len(checked[file][0])
        message = t("{rows} rows are fewer than batch_size {batch_size}", rows=rows, batch_size=batch_size)
        problems.append(Problem(place=str(file), message=message))
    notes = _notes(checked, file, validation)
    if as_json:
        print_json(_as_json(checked, problems, notes))
    else:
        _tell(checked, problems, notes)
    if problems:
        raise typer.Exit(2)


def _check_offline(
    paths: Sequence[Path],
    form: TrainingType,
    model: str | None,
    max_length: int | None,
    batch_size: int | None,
    as_json: bool,
) -> None:

    files, problems, notes = check_offline(paths, form, model=model, max_length=max_length)
    for one in files[:1]:
        if batch_size is not None and one.file == str(paths[0]) and one.rows < batch_size:
            message = t(
                "{rows} rows are fewer than batch_size {batch_size}", rows=one.rows, batch_size=batch_size
            )
            problems.append(Problem(place=one.file, message=message))
    if as_json:
        wrong = [{"place": one.place, "message": one.message, "fix": one.fix} for one in problems]
        print_json({"files": [one.as_json() for one in files], "problems": wrong, "notes": notes})
    else:
        taught = t("taught tokens")
        names = (t("file"), t("rows"), t("pairs"), taught, *_QUANTILES)
        table = Table(*names, box=None, pad_edge=False, header_style="bold")
        for one in files:
            lengths = quantiles(one.lengths)
            shown = "-" if one.taught is None else str(one.taught)
            table.add_row(
                one.file, str(one.rows), str(one.pairs), shown, *(str(lengths[name]) for name in _QUANTILES)
            )
        if files:
            print_table(table)
        _tell({}, problems, notes)
    if problems:
        raise typer.Exit(2)


def _checked(
    paths: Sequence[Path], count: Callable[[Any, Any], int] | None, limit: int | None
) -> tuple[dict[Path, tuple[Dataset, list[int]]], list[Problem]]:
    """Datasets that are in order with the lengths of their prompts, and every problem of the others."""
    from strop.data.dataset import load_dataset

    checked: dict[Path, tuple[Dataset, list[int]]] = {}
    problems: list[Problem] = []
    for path in paths:
        lengths: list[int] = []

        def length(messages: list[dict[str, Any]], tools: Any, lengths: list[int] = lengths) -> int:
            lengths.append(count(messages, tools) if count is not None else _characters(messages))
            return lengths[-1]

        try:
            dataset = load_dataset(path, max_prompt_length=limit or _NO_LIMIT, prompt_length=length)
            checked[path] = (dataset, lengths)
        except DataError as error:
            problems += error.problems
    return checked, problems


def _counter(model: str) -> Callable[[Any, Any], int]:
    """Tokens of a prompt, as the model's own tokenizer and template have them; its weights are not loaded."""
    from strop.cli.checking import prompt_counter
    from strop.learners.models import resolve

    return prompt_counter(resolve(model, on_progress=lambda text: print(text, file=sys.stderr)))


def _characters(messages: list[dict[str, Any]]) -> int:
    return sum(len(str(message.get("content") or "")) for message in messages)


def _notes(checked: dict[Path, tuple[Dataset, list[int]]], file: Path, validation: Path | None) -> list[str]:
    from strop.data.dataset import overlap_notes

    notes = [note for dataset, _ in checked.values() for note in dataset.notes]
    if validation is not None and file in checked and validation in checked:
        notes += overlap_notes(checked[file][0], checked[validation][0])
    return notes


def quantiles(lengths: Sequence[int]) -> dict[str, int]:
    """Nearest-rank quantiles.

    >>> quantiles([1, 2, 3, 4])
    {'min': 1, 'p50': 2, 'p90': 4, 'p99': 4, 'max': 4}
    """
    ordered = sorted(lengths)
    last = len(ordered) - 1
    return {
        name: ordered[min(last, max(0, -int(-share * len(ordered) // 1) - 1))]
        for name, share in _QUANTILES.items()
    }


def _as_json(
    checked: dict[Path, tuple[Dataset, list[int]]], problems: list[Problem], notes: list[str]
) -> dict[str, Any]:
    files = [
        {
            "file": str(path),
            "rows": len(dataset),
            "with_ground_truth": sum(sample.ground_truth is not None for sample in dataset.samples),
            "with_tools": sum(bool(sample.tools) for sample in dataset.samples),
            "lengths": quantiles(lengths) | {"total": sum(lengths)},
        }
        for path, (dataset, lengths) in checked.items()
    ]
    wrong = [{"place": one.place, "message": one.message, "fix": one.fix} for one in problems]
    return {"files": files, "problems": wrong, "notes": notes}


def _tell(checked: dict[Path, tuple[Dataset, list[int]]], problems: list[Problem], notes: list[str]) -> None:
    console = Console(markup=False, emoji=False)
    if checked:
        names = (
            t("file"),
            t("rows"),
            t("ground truth"),
            t("tools"),
            *_QUANTILES,
        )
        table = Table(*names, box=None, pad_edge=False, header_style="bold")
        for row in _as_json(checked, [], [])["files"]:
            lengths = [str(row["lengths"][name]) for name in _QUANTILES]
            table.add_row(
                row["file"],
                str(row["rows"]),
                str(row["with_ground_truth"]),
                str(row["with_tools"]),
                *lengths,
            )
        print_table(table)
    for note in notes:
        console.print(
            f"{t('note')}  {told(note)}",
            style="yellow",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(t("{num_problems} problems", num_problems=len(problems)), file=sys.stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineFile:
    """A file that is in order. Without a model's tokenizer `lengths` are characters, and `taught` is not known.

    Units:
        lengths: tokens of each example, its longest sequence. taught: tokens that are learned to be said.
    """

    file: str
    rows: int
    pairs: int
    taught: int | None
    lengths: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:

        lengths = quantiles(self.lengths) | {"total": sum(self.lengths)}
        return {**asdict(self), "lengths": lengths}


def check_offline(
    paths: Sequence[Path], form: TrainingType, *, model: str | None, max_length: int | None
) -> tuple[list[OfflineFile], list[Problem], list[str]]:
    """The files that are in order, every problem of the others, and notes for a person.

    Raises:
        ModelError: the model's tokenizer cannot be loaded.
    """
    tokens = _tokens(model) if model is not None else None
    files: list[OfflineFile] = []
    problems: list[Problem] = []
    notes: list[str] = []
    for path in paths:
        try:
            if tokens is None:
                files.append(_by_characters(path, form))
            else:
                dataset = _loaded(path, form, max_length or _NO_LIMIT, tokens)
                files.append(_by_tokens(path, dataset))
                notes += dataset.notes
        except DataError as error:
            problems += error.problems
    return files, problems, notes


def _by_characters(path: Path, form: TrainingType) -> OfflineFile:
    from strop.data.reading import read_offline

    rows = read_offline(path, form)
    problems = [*rows.problems]
    if not rows.num_rows:
        problems.append(
            Problem(place=str(path), message=msg("no rows"), fix=msg("write one JSON object a line"))
        )
    if problems:
        raise DataError(str(path), problems)
    lengths = tuple(
        sum(len(str(one.get("content") or "")) for one in row.messages) + len(row.text) for row in rows.good
    )
    pairs = sum(len(row.candidates) > 1 for row in rows.good)
    return OfflineFile(file=str(path), rows=len(lengths), pairs=pairs, taught=None, lengths=lengths)


def _loaded(path: Path, form: TrainingType, max_length: int, tokens: TextTokens) -> Dataset[Example]:
    from strop.data.examples import load_examples

    return load_examples(path, form, max_length=max_length, tokens=tokens)


def _by_tokens(path: Path, dataset: Dataset[Example]) -> OfflineFile:
    examples = dataset.samples
    return OfflineFile(
        file=str(path),
        rows=len({one.row for one in examples}),
        pairs=sum(len(one.pairs) for one in examples),
        taught=sum(sum(each.loss_mask) for one in examples for each in one.sequences if each.weight > 0),
        lengths=tuple(max(len(each.token_ids) for each in one.sequences) for one in examples),
    )


def _tokens(model: str) -> TextTokens:
    """As a training has them; the weights are not loaded."""
    from strop.cli.checking import text_tokens
    from strop.learners.models import resolve

    return text_tokens(resolve(model, on_progress=lambda text: print(text, file=sys.stderr)))
