"""`strop files`: the files of rows that a server keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strop.cli.remote import (
    AsJson,
    PageOption,
    ServerOption,
    SizeOption,
    open_client,
    plain,
    print_json,
    show_list,
    show_one,
)
from strop.cli.text import t

app = typer.Typer(no_args_is_help=True)

FileArgument = Annotated[str, typer.Argument(metavar="FILE_ID", help=t("The file's id."))]


@app.command(
    "upload",
    help=t(
        "Send files and print their ids. `strop data check` tells beforehand what is wrong with their rows."
    ),
)
def upload(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE...")],
    server: ServerOption = None,
    as_json: AsJson = False,
) -> None:
    with open_client(server) as client:
        made = [client.files.upload(path) for path in paths]
    if as_json:
        print_json([plain(one) for one in made])
    else:
        for one in made:
            print(one.file_id)


@app.command("list", help=t("List files, newest first."))
def list_(
    page: PageOption = 1, size: SizeOption = 10, server: ServerOption = None, as_json: AsJson = False
) -> None:
    with open_client(server) as client:
        listed = client.files.list(page_no=page, page_size=size)
    columns = [
        (t("file"), lambda one: one.file_id),
        (t("name"), lambda one: one.name),
        (t("bytes"), lambda one: one.size),
        (t("created"), lambda one: one.gmt_create),
    ]
    show_list(listed, columns, as_json=as_json, total=listed.total)


@app.command("get", help=t("Show one file."))
def get(file_id: FileArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    with open_client(server) as client:
        show_one(client.files.get(file_id), as_json=as_json)


@app.command("delete", help=t("Forget a file; submitted jobs keep their copy."))
def delete(file_id: FileArgument, server: ServerOption = None) -> None:
    with open_client(server) as client:
        client.files.delete(file_id)
    print(t("deleted {file_id}", file_id=file_id))
