"""Options and output that every command has which talks to a server: where it is, tables for people, JSON for
scripts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from strop.cli.text import t

if TYPE_CHECKING:
    from strop.client import Client

_WHOLE = 100_000
"""Columns: no table is as wide."""

T = TypeVar("T", bound=BaseModel)
Column = tuple[str, Callable[[Any], object]]

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="STROP_URL",
        show_envvar=False,
        help=t("The server; STROP_URL, else the one that runs here. Its key is STROP_API_KEY."),
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help=t("Print JSON on stdout."))]
PageOption = Annotated[int, typer.Option("--page", "-p", min=1, help=t("Page, from 1."))]
SizeOption = Annotated[int, typer.Option("--size", "-s", min=1, max=100, help=t("Items on a page."))]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help=t("The job's id."))]


def open_client(server: str | None) -> Client:
    """
    Raises:
        StropError: no server or no key is known.
    """
    from strop.client import Client

    return Client(server)


def looking(server: str | None) -> AbstractContextManager[Client]:
    """A client for what the store knows: of the server that is named or runs here, else of one for the moment.

    Raises:
        StropError: a server is named, and no key for it is known.
    """
    from strop.cli.private_server import client_of

    return client_of(server)


def print_table(table: Table) -> None:
    """As wide as the terminal; in a pipe as wide as it is, for nothing may be cut there."""
    wide = sys.stdout.isatty() or "COLUMNS" in os.environ
    Console(width=None if wide else _WHOLE, markup=False, emoji=False).print(table)


def show_list(
    items: Iterable[T], columns: Sequence[Column], *, as_json: bool, total: int | None = None
) -> None:
    """A table, with a line below it where it is not all; or JSON."""
    rows = list(items)
    if as_json:
        print_json([plain(row) for row in rows])
        return
    table = Table(*(name for name, _ in columns), box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(cell(read(row)) for _, read in columns))
    print_table(table)
    if total is not None and total > len(rows):
        text = t("{num_rows} of {total}", num_rows=len(rows), total=total)
        Console(markup=False, emoji=False).print(text, style="dim")


def show_one(item: BaseModel, *, as_json: bool) -> None:
    """A name and a value a line; or JSON."""
    values = plain(item)
    if as_json:
        print_json(values)
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in values.items():
        if value not in ("", [], {}):
            text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else cell(value)
            table.add_row(name, text)
    print_table(table)


def plain(item: BaseModel) -> dict[str, Any]:
    """As JSON has it, without what is not there and without secrets."""
    return item.model_dump(mode="json", exclude_none=True, exclude={"trigger_token"})


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def cell(value: object) -> str:
    """
    >>> cell(None), cell(0.25), cell(True)
    ('-', '0.25', 'yes')
    """
    match value:
        case None:
            return "-"
        case bool():
            return t("yes") if value else ""
        case float():
            return f"{value:.4g}"
        case datetime():
            return f"{value.astimezone():%Y-%m-%d %H:%M:%S}"
        case _:
            return str(value)
