"""`strop demo`: the whole flow once, on the calculator example, in a few minutes on a laptop."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from strop.cli.next_steps import RunCommand, after, program
from strop.cli.run_folder import named_folder
from strop.cli.text import t
from strop.errors import StropError
from strop.schema.job import JobStatus

if TYPE_CHECKING:
    from strop.config.job import JobConfig
    from strop.schema.trajectory import Trajectory
    from strop.store.database import Database

NUM_QUESTIONS = 3
SUMMARY = "summary.json"


def demo(
    steps: Annotated[
        int | None,
        typer.Option(min=1, help=t("Training steps; the example's own if not given.")),
    ] = None,
    seed: Annotated[int | None, typer.Option(help=t("Seed of data order and sampling."))] = None,
    out: Annotated[
        Path,
        typer.Option(
            parser=named_folder,
            metavar="PATH",
            help=t("Folder for the summary and the checkpoint."),
        ),
    ] = Path("demo"),
) -> None:
    """"""
    from strop.cli.checking import check_whole
    from strop.cli.interrupts import EXIT_CANCELED
    from strop.cli.local_run import checked_folder, train_locally
    from strop.cli.run import given

    started = time.monotonic()
    console = Console(markup=False, emoji=False)
    overridden, given_by = given([], steps=steps, seed=seed)
    job = example() / "job.yaml"
    config = check_whole(job, overridden, given_by, load_functions=False)
    console.print(
        t(
            "Training {name} with {algorithm} to use a calculator.",
            name=config.model.name,
            algorithm=config.hyper_parameters.algorithm,
        )
    )
    answers: list[dict[str, object]] = []

    def look(database: Database, ended: Mapping[str, Any]) -> None:
        console.print(t("\nThree held-out questions:"), style="bold")
        for question, one in answered(database, ended, config):
            show(console, question, one)
            said = str(one.messages[-1].get("content", "")) if one.messages else ""
            right = one.reward is not None and one.reward > 0.5
            answers.append({"question": question, "answer": said, "right": right})

    # An earlier demo left its summary; any other run's checkpoints are not ours to remove.
    folder = checked_folder(out, None, anew=(out / SUMMARY).is_file())
    command = RunCommand(job=job, overrides=overridden, given_by=given_by, out=folder)
    result = train_locally(config, command, folder, console, then=look)
    told = {**result, "wall_s": round(time.monotonic() - started, 1), "questions": answers}
    path = out / SUMMARY
    out.mkdir(parents=True, exist_ok=True)  # a run ended before its first step has made nothing
    path.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if result["status"] == JobStatus.CANCELED.value:
        for line in after(result, command):
            console.print(line, highlight=False, soft_wrap=True, markup=False)
        console.print(t("summary:  {path}", path=path), highlight=False, soft_wrap=True)
        raise typer.Exit(EXIT_CANCELED)
    say_what_next(console, path, result["checkpoint"])


def example() -> Path:
    """The calculator example of this checkout.

    Raises:
        StropError: Strop was installed without its examples.
    """
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        folder = root / "examples" / "calculator"
        if (folder / "job.yaml").is_file():
            return folder
    raise StropError(
        t("the example folder examples/calculator is not here"),
        fix=t("run this in a clone of the repository"),
    )


def answered(database: Database, ended: Mapping[str, Any], config: JobConfig) -> list[tuple[str, Trajectory]]:
    """The first held-out questions with what the trained model said in the last validation, greedily."""
    from strop.data.reading import read_samples
    from strop.store.trajectories import list_trajectories

    (rows,) = (Path(one.file_name) for one in config.datasets if one.type == "validation")
    samples = read_samples(rows).good
    last = ended["validation"][-1]["step"]
    asked: list[tuple[str, Trajectory]] = []
    with database.read() as session:
        for sample in samples[:NUM_QUESTIONS]:
            found = list_trajectories(
                session, ended["job_id"], step=last, split="validation", sample_id=sample.sample_id
            )
            asked.append((str(sample.messages[-1]["content"]), found.items[-1].trajectory))
    return asked


def show(console: Console, question: str, one: Trajectory) -> None:
    """The question and every message that came after it."""
    spoken = one.messages
    asked = next(
        (i for i, message in enumerate(spoken) if message.get("content") == question), len(spoken) - 1
    )
    console.print(f"\n  {t('question'):<10}  {question}", markup=False, highlight=False)
    for message in spoken[asked + 1 :]:
        who = t("model") if message.get("role") == "assistant" else t("calculator")
        console.print(f"  {who:<10}  {message.get('content')}", markup=False, highlight=False)
    if one.error:
        console.print(f"  {one.error}", style="red", markup=False)


def say_what_next(console: Console, path: Path, checkpoint: str | None) -> None:
    strop = program()
    chat = f"  {strop} chat {checkpoint}\n" if checkpoint else ""
    console.print(
        t(
            "\nSummary: {path}\nWhat next:\n{chat}  open "
            "examples/calculator/functions/reward.py, write a reward of your own, then\n  "
            "{strop} run examples/calculator/job.yaml",
            path=path,
            chat=chat,
            strop=strop,
        ),
        highlight=False,
        soft_wrap=True,
        markup=False,
    )
