"""`strop models`: what a model name stands for, publishing checkpoints, and getting models onto this machine."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strop.cli.remote import AsJson, ServerOption, open_client, plain, print_json, print_table, show_list
from strop.cli.text import t
from strop.locales import msg

if TYPE_CHECKING:
    from strop.schema.job import Checkpoint
    from strop.schema.model import NamedModel
    from strop.schema.responses import ModelInfo
    from strop.store.database import Database

app = typer.Typer(no_args_is_help=True)


@app.command(
    "pull",
    help=t("Fetch a model once and print its folder. NAME is a folder, a hub id, or smollm2-135m."),
)
def pull(name: str, as_json: AsJson = False) -> None:
    from strop.learners import models

    folder = models.resolve(name, on_progress=lambda text: typer.echo(text, err=True))
    typer.echo(json.dumps({"name": name, "folder": str(folder)}) if as_json else str(folder))


@app.command(
    "add",
    help=t(
        "Let NAME stand for SOURCE (a folder, a hub id, smollm2-135m), as in: strop "
        "models add qwen3.5-9b /models/Qwen3.5-9B"
    ),
)
def add(name: str, source: str) -> None:
    from strop.store.model_folder import check_name
    from strop.store.models import register_model

    check_name(name)
    source = checked_source(source)
    with _database() as database, database.write() as session:
        register_model(session, name, source)
    typer.echo(f"{name} -> {source}")


@app.command(
    "list",
    help=t("All names: the table, what was published, smollm2-135m."),
)
def list_(server: ServerOption = None, as_json: AsJson = False) -> None:
    if server is not None:
        _list_there(server, as_json=as_json)
        return
    from rich.table import Table

    from strop.store.models import bundled_model, list_models

    with _database() as database, database.read() as session:
        models = [bundled_model(), *list_models(session)]
    if as_json:
        typer.echo(json.dumps([_shown(model) for model in models], indent=2, ensure_ascii=False))
        return
    table = Table(t("name"), t("kind"), t("stands for"), t("job"), t("step"))
    for model in models:
        lineage = model.lineage
        job, step = (lineage.job_id, str(lineage.step)) if lineage is not None else ("", "")
        table.add_row(model.name, model.kind.value, model.source, job, step)
    print_table(table)


@app.command(
    "remove",
    help=t("Take NAME out of the table; of a published model the files go too."),
)
def remove(name: str) -> None:
    from strop.errors import ConflictError
    from strop.store.deployments import served_from
    from strop.store.model_folder import published_folder
    from strop.store.models import find_model, remove_model
    from strop.store.published import remove_published

    with _database() as database:
        with database.write() as session:
            served = served_from(session, name)
            if served:
                raise ConflictError(
                    t("{name!r} is being served as {served}", name=name, served=", ".join(served)),
                    fix=t("delete these deployments first"),
                )
            # A publication that was cut off may have left files without a row.
            if find_model(session, name) is not None or published_folder(name) is None:
                remove_model(session, name)
            remove_published(name)
    typer.echo(t("removed {name}", name=name))


@app.command(
    "publish",
    help=t(
        "Publish a checkpoint of JOB as NAME: its last one, --checkpoint best by validation, or any step."
    ),
)
def publish(
    job: str,
    name: str,
    checkpoint: Annotated[str, typer.Option(help=t("last, best, a step or a checkpoint's id."))] = "last",
    server: ServerOption = None,
    as_json: AsJson = False,
) -> None:
    if server is not None:
        with open_client(server) as client:
            made = client.jobs.publish(job, name, checkpoint=checkpoint)
        if as_json:
            print_json(plain(made))
        else:
            typer.echo(made.model_name)
        return
    from strop.store.checkpoints import list_checkpoints
    from strop.store.jobs import get_job
    from strop.store.published import choose_checkpoint, publish_checkpoint

    with _database() as database:
        with database.read() as session:
            trained = get_job(session, job)
            chosen: Checkpoint = choose_checkpoint(trained, list_checkpoints(session, job), checkpoint)
        model = publish_checkpoint(database, chosen, name)
    if as_json:
        typer.echo(json.dumps(_shown(model), indent=2, ensure_ascii=False))
    else:
        typer.echo(
            t(
                "{name}: step {step} of {job}, in {source}",
                name=model.name,
                step=chosen.step,
                job=job,
                source=model.source,
            )
        )


@app.command("show", help=t("Print what NAME is, with its lineage, as JSON."))
def show(name: str) -> None:
    from strop.errors import ModelError
    from strop.store.models import find_model

    with _database() as database, database.read() as session:
        model = find_model(session, name)
    if model is None:
        raise ModelError(
            t("there is no model {name!r} in the table", name=name),
            fix=msg("strop models list"),
        )
    typer.echo(json.dumps(model.model_dump(mode="json"), indent=2, ensure_ascii=False))


def checked_source(source: str) -> str:
    """A folder as an absolute path, a hub id or the bundled model as it is.

    Raises:
        ModelError: none of these.
    """
    import re
    from pathlib import Path

    from strop.errors import ModelError
    from strop.schema.model import BUNDLED_NAMES

    folder = Path(source).expanduser()
    if (folder / "config.json").is_file():
        return str(folder.absolute())
    if source.lower() in BUNDLED_NAMES or (re.fullmatch(r"[\w.-]+/[\w.-]+", source) and not folder.is_dir()):
        return source
    raise ModelError(
        t("{source!r} is no model: not a folder with config.json, not a hub id", source=source),
        fix=t("give a folder in Hugging Face layout, or an id such as Qwen/Qwen2.5-0.5B-Instruct"),
    )


def _list_there(server: str, *, as_json: bool) -> None:
    """The models of a server, all pages."""
    found: list[ModelInfo] = []
    with open_client(server) as client:
        while True:
            page = client.models.list(page_no=len(found) // 100 + 1, page_size=100)
            found += page
            if len(page) < 100:
                break
    columns = [
        (t("name"), lambda model: model.model_name),
        (t("kind"), lambda model: model.model_source),
        (t("base"), lambda model: model.base_model),
        (t("job"), lambda model: (model.lineage or {}).get("job_id", "")),
        (t("step"), lambda model: (model.lineage or {}).get("step", "")),
    ]
    show_list(found, columns, as_json=as_json)


def _shown(model: NamedModel) -> dict[str, Any]:
    """Without the configuration, which `strop models show` prints."""
    return model.model_dump(mode="json", exclude={"lineage": {"config", "files"}})


def _database() -> closing[Database]:
    from strop.store.database import open_database

    return closing(open_database())
