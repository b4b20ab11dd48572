"""`strop models`: what a model name stands for, and getting it onto this machine."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from strop.cli.text import t

app = typer.Typer(no_args_is_help=True, help=t("Models on this machine.", "本机上的模型。"))


@app.callback()
def _models() -> None:
    pass


@app.command(
    "pull",
    help=t(
        "Fetch a model once and print its folder. NAME is a folder, a hub id, or smollm2-135m.",
        "获取模型（仅一次）并打印其目录。NAME 是目录、模型库 id 或 smollm2-135m。",
    ),
)
def pull(
    name: str,
    as_json: Annotated[
        bool, typer.Option("--json", help=t("Print JSON on stdout.", "在标准输出打印 JSON。"))
    ] = False,
) -> None:
    from strop.policy import models

    folder = models.resolve(name, on_progress=lambda text: typer.echo(text, err=True))
    typer.echo(json.dumps({"name": name, "folder": str(folder)}) if as_json else str(folder))
