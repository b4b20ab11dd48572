"""`strop keys`: who may call the server of this home. Works on its database; a key's text is shown once."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from strop.cli.remote import AsJson, plain, print_json, show_list
from strop.cli.text import t
from strop.locales import msg

if TYPE_CHECKING:
    from strop.store.database import Database

app = typer.Typer(no_args_is_help=True)

WorkspaceOption = Annotated[
    str,
    typer.Option(
        "--workspace",
        "-w",
        help=t("Its workspace; made if it is new. Workspaces do not see each other."),
    ),
]


@app.command(
    "create",
    help=t("Make a key called NAME and print it. It cannot be shown again."),
)
def create(name: str, workspace: WorkspaceOption = "default", as_json: AsJson = False) -> None:
    from strop.errors import ConfigError, Problem
    from strop.store.keys import create_key, ensure_workspace

    for place, text in (("NAME", name), ("--workspace", workspace)):
        if not text.strip() or not text.isprintable() or len(text) > 100:
            raise ConfigError(
                "keys",
                [
                    Problem(
                        place=place,
                        message=msg("{text!r} is no name", text=text[:100]),
                        fix=msg("1 to 100 characters"),
                    )
                ],
            )
    with _database() as database, database.write() as session:
        key, text = create_key(session, ensure_workspace(session, workspace).workspace_id, name)
    if as_json:
        print_json(plain(key) | {"key": text})
    else:
        print(text)


@app.command("list", help=t("List keys, revoked ones too; never their text."))
def list_(as_json: AsJson = False) -> None:
    from strop.store.keys import list_keys, list_workspaces

    with _database() as database, database.read() as session:
        keys = list_keys(session)
        names = {one.workspace_id: one.name for one in list_workspaces(session)}
    columns = [
        (t("key"), lambda one: one.key_id),
        (t("name"), lambda one: one.name),
        (t("workspace"), lambda one: names.get(one.workspace_id, one.workspace_id)),
        (t("created"), lambda one: one.created_at),
        (t("revoked"), lambda one: one.revoked_at),
    ]
    show_list(keys, columns, as_json=as_json)


@app.command("revoke", help=t("End a key for good."))
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help=t("See: strop keys list"))],
) -> None:
    from strop.store.keys import revoke_key

    with _database() as database, database.write() as session:
        key = revoke_key(session, key_id)
    print(t("revoked {key_id} ({name})", key_id=key.key_id, name=key.name))


def _database() -> closing[Database]:
    from strop.store.database import open_database

    return closing(open_database())
