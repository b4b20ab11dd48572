"""`strop functions show`: how the rewards of a job, or the parts of one class, are added up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from strop.cli.registered import app
from strop.cli.remote import AsJson, print_json
from strop.cli.text import t
from strop.config.job import FunctionConfig
from strop.config.loading import load_job
from strop.errors import FunctionError
from strop.schema.function import FunctionType
from strop.workers.functions import worker_spec
from strop.workers.masking import Mask
from strop.workers.process import WorkerProcess
from strop.workers.spec import WorkerSpec

FORMULA = "reward = sum(weight x share x score)"

_START_LIMIT_S = 600.0


@app.command(
    help=t(
        "Show how rewards are added up: the functions of a job file, or the parts of one class. Loads them to ask.",
        "显示奖励如何相加：任务文件中的各函数，或一个类的各个子维度。会加载函数以读取权重。",
    )
)
def show(
    what: Annotated[
        str,
        typer.Argument(
            metavar="JOB|CLASSPATH",
            help=t("job.yaml, or a class path.", "job.yaml，或 class path。"),
        ),
    ],
    root: Annotated[
        Path,
        typer.Option(
            "--root",
            exists=True,
            file_okay=False,
            help=t("Folder that a class path starts from.", "class path 的起始目录。"),
        ),
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    if what.endswith((".yaml", ".yml")):
        config = load_job(Path(what))
        functions = [one for one in config.functions if one.type is not FunctionType.ROLLOUT]
        workspace = Path(config.workspace_dir)
    else:
        functions = [_alone(what)]
        workspace = root.resolve()
    if not functions:
        print(t("no reward functions", "没有奖励函数"))
        return
    try:
        parts = asyncio.run(_parts(functions, workspace))
    except FunctionError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    rows = [row for one, found in zip(functions, parts, strict=True) for row in _rows(one, found)]
    if as_json:
        print_json({"formula": FORMULA, "parts": rows})
        return
    table = Table(box=None, pad_edge=False)
    for title in (t("function", "函数"), t("part", "子维度")):
        table.add_column(title, no_wrap=True)
    for title in ("weight", "share", "weight x share"):
        table.add_column(title, justify="right")
    for row in rows:
        numbers = (f"{row[key]:g}" for key in ("weight", "share", "product"))
        table.add_row(str(row["function"]), str(row["part"] or "-"), *numbers)
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(table)
    console.print(FORMULA, markup=False)


def _alone(classpath: str) -> FunctionConfig:
    """A class as a job would have it; what kind of reward it is, it says itself."""
    return FunctionConfig.model_validate({"type": FunctionType.REWARD, "fcmodel": {"classpath": classpath}})


async def _parts(functions: list[FunctionConfig], workspace: Path) -> list[dict[str, float]]:
    """The weights of each function's parts, as its worker tells them."""
    alone = len(functions) == 1
    specs = [worker_spec(one, workspace) for one in functions]
    told = await asyncio.gather(*(_ask(spec, any_kind=alone) for spec in specs), return_exceptions=True)
    for one in told:
        if isinstance(one, BaseException):
            raise one
    return [one for one in told if isinstance(one, dict)]


async def _ask(spec: WorkerSpec, *, any_kind: bool) -> dict[str, float]:
    from dataclasses import replace

    worker = WorkerProcess(
        replace(spec, func_type=None) if any_kind else spec,
        job_id="show",
        mask=Mask(spec.env.values()),
        on_line=lambda *_: None,
    )
    await worker.start(limit_s=_START_LIMIT_S, on_stuck=lambda: None)
    await worker.kill()
    return worker.sub_weights


def _rows(function: FunctionConfig, parts: dict[str, float]) -> list[dict[str, object]]:
    """A line a part; one for a function that has none, whose score counts as it is."""
    return [
        {
            "function": function.label,
            "part": part,
            "weight": function.weight,
            "share": share,
            "product": function.weight * share,
        }
        for part, share in (parts or {"": 1.0}).items()
    ]
