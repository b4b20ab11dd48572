"""`strop deployments`: models that a server serves."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

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

Deployed = Annotated[
    str,
    typer.Argument(metavar="DEPLOYMENT", help=t("Its name, `deployed_model`.")),
]


@app.command(
    "create",
    help=t("Serve MODEL and wait until it answers. Prints the name that clients ask for."),
)
def create(
    model: Annotated[str, typer.Argument(metavar="MODEL")],
    capacity: Annotated[int, typer.Option("--capacity", "-c", min=1, help=t("Replicas."))] = 1,
    suffix: Annotated[str | None, typer.Option("--suffix", help=t("End of its name."))] = None,
    rpm: Annotated[int | None, typer.Option("--rpm", min=1, help=t("Calls a minute."))] = None,
    tpm: Annotated[int | None, typer.Option("--tpm", min=1, help=t("Tokens a minute."))] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help=t("Wait until it answers."))] = True,
    server: ServerOption = None,
    as_json: AsJson = False,
) -> None:
    console = Console(stderr=True, markup=False, emoji=False)
    with open_client(server) as client:
        made = client.deployments.create(
            model, capacity=capacity, suffix=suffix, rpm_limit=rpm, tpm_limit=tpm
        )
        if wait:
            text = t("{deployed_model} is starting", deployed_model=made.deployed_model)
            with console.status(text):
                made = client.deployments.wait(made.deployed_model)
        url = client.url
    if as_json:
        print_json(plain(made))
        return
    print(made.deployed_model)
    console.print(f"{url}/v1/chat/completions", style="dim", highlight=False, markup=False)


@app.command("list", help=t("List deployments, newest first."))
def list_(
    page: PageOption = 1, size: SizeOption = 10, server: ServerOption = None, as_json: AsJson = False
) -> None:
    with open_client(server) as client:
        listed = client.deployments.list(page_no=page, page_size=size)
    columns = [
        (t("deployment"), lambda one: one.deployed_model),
        (t("status"), lambda one: one.status),
        (t("model"), lambda one: one.model_name),
        (t("ready"), lambda one: f"{one.ready_capacity}/{one.capacity}"),
        (t("created"), lambda one: one.gmt_create),
    ]
    show_list(listed, columns, as_json=as_json, total=listed.total)


@app.command("get", help=t("Show one deployment. Exit status 1 if it FAILED."))
def get(deployment: Deployed, server: ServerOption = None, as_json: AsJson = False) -> None:
    with open_client(server) as client:
        found = client.deployments.get(deployment)
    show_one(found, as_json=as_json)
    if found.status == "FAILED":
        raise typer.Exit(1)


@app.command("scale", help=t("Have another number of replicas."))
def scale(
    deployment: Deployed,
    capacity: Annotated[int, typer.Option("--capacity", "-c", min=1, help=t("Replicas."))],
    server: ServerOption = None,
    as_json: AsJson = False,
) -> None:
    with open_client(server) as client:
        show_one(client.deployments.scale(deployment, capacity), as_json=as_json)


@app.command(
    "limit",
    help=t("Set calls and tokens a minute; what is not given is without a limit."),
)
def limit(
    deployment: Deployed,
    rpm: Annotated[int | None, typer.Option("--rpm", min=1, help=t("Calls a minute."))] = None,
    tpm: Annotated[int | None, typer.Option("--tpm", min=1, help=t("Tokens a minute."))] = None,
    server: ServerOption = None,
    as_json: AsJson = False,
) -> None:
    with open_client(server) as client:
        show_one(client.deployments.limit(deployment, rpm_limit=rpm, tpm_limit=tpm), as_json=as_json)


@app.command("delete", help=t("End a deployment."))
def delete(deployment: Deployed, server: ServerOption = None) -> None:
    with open_client(server) as client:
        client.deployments.delete(deployment)
    print(t("deleted {deployment}", deployment=deployment))
