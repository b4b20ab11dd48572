"""`strop evaluations`: measure a model of a server with a job's functions and rows, and see what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from strop.cli.remote import (
    AsJson,
    PageOption,
    ServerOption,
    SizeOption,
    cell,
    looking,
    open_client,
    plain,
    print_json,
    print_table,
    show_list,
)
from strop.cli.text import t
from strop.schema.job import JobStatus
from strop.schema.sampling import checked_temperature

if TYPE_CHECKING:
    from strop.schema.responses import EvaluationInfo

app = typer.Typer(no_args_is_help=True)

EvaluationArgument = Annotated[str, typer.Argument(metavar="EVALUATION", help=t("The evaluation's id."))]


@app.command(
    "create",
    help=t(
        "Measure a model, a checkpoint or a deployment with the functions and validation rows of a job file."
    ),
)
def create(
    job: Annotated[Path, typer.Argument(help=t("The job, a YAML file."))],
    model: Annotated[str | None, typer.Option(help=t("A model's name."))] = None,
    checkpoint: Annotated[str | None, typer.Option(help=t("A checkpoint's id."))] = None,
    deployment: Annotated[str | None, typer.Option(help=t("A deployment's name."))] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", help=t("These rows instead of the job's. Repeatable.")),
    ] = None,
    rollouts: Annotated[int, typer.Option("-n", min=1, max=256, help=t("Rollouts a row."))] = 1,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, help=t("0, or 1 with several rollouts, if not given.")),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help=t("Wait for its end."))] = False,
    server: ServerOption = None,
    as_json: AsJson = False,
) -> None:
    from strop.cli.server_run import EXIT_STATUS
    from strop.client import evaluations
    from strop.client.tuning import Dataset, read_tuning

    given = {"model": model, "checkpoint_id": checkpoint, "deployed_model": deployment}
    subject = {key: value for key, value in given.items() if value is not None}
    if len(subject) != 1:
        raise typer.BadParameter(t("name one of --model, --checkpoint and --deployment"))
    try:
        checked_temperature(temperature or 0.0)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    console = Console(stderr=True, markup=False, emoji=False)
    tuning, workspace = read_tuning(job, {})
    if data:
        rows = [Dataset(type="validation", file_name=str(path.resolve())) for path in data]
        tuning = tuning.model_copy(update={"datasets": rows})
    with open_client(server) as client:
        made = client.run(
            evaluations.run(
                tuning,
                workspace,
                subject,
                n_rollouts=rollouts,
                temperature=temperature,
                say=lambda text: console.print(text, style="dim", highlight=False, markup=False),
            )
        )
        if wait:
            made = client.evaluations.wait(made.evaluation_id)
    if as_json:
        print_json(plain(made))
    elif wait:
        _show(made)
    else:
        print(made.evaluation_id)
    if wait:
        raise typer.Exit(EXIT_STATUS[made.status])


@app.command("list", help=t("List evaluations, newest first."))
def list_(
    status: Annotated[JobStatus | None, typer.Option(help=t("Only these."))] = None,
    page: PageOption = 1,
    size: SizeOption = 10,
    server: ServerOption = None,
    as_json: AsJson = False,
) -> None:
    with looking(server) as client:
        listed = client.evaluations.list(page_no=page, page_size=size, status=status)
    columns = [
        (t("evaluation"), lambda one: one.evaluation_id),
        (t("name"), lambda one: one.name),
        (t("status"), lambda one: one.status.value),
        (t("model"), lambda one: one.model),
        (t("datasets"), lambda one: len(one.datasets)),
        (t("mean"), lambda one: one.mean),
        (t("created"), lambda one: one.create_time),
    ]
    show_list(listed, columns, as_json=as_json, total=listed.total)


@app.command("get", help=t("Show one evaluation. Exit status 1 if it FAILED."))
def get(evaluation: EvaluationArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    with looking(server) as client:
        found = client.evaluations.get(evaluation)
    if as_json:
        print_json(plain(found))
    else:
        _show(found)
    if found.status is JobStatus.FAILED:
        raise typer.Exit(1)


@app.command("cancel", help=t("End an evaluation; what was measured stays."))
def cancel(evaluation: EvaluationArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    with looking(server) as client:
        ended = client.evaluations.cancel(evaluation)
    if as_json:
        print_json(plain(ended))
    else:
        print(f"{ended.evaluation_id}   {ended.status.value}")


@app.command("delete", help=t("Delete an ended evaluation."))
def delete(evaluation: EvaluationArgument, server: ServerOption = None) -> None:
    with looking(server) as client:
        client.evaluations.delete(evaluation)
    print(t("deleted {evaluation}", evaluation=evaluation))


def _show(one: EvaluationInfo) -> None:
    console = Console(markup=False, emoji=False)
    head = f"{one.evaluation_id}   {one.status.value}   {one.model}   {t('mean')} {cell(one.mean)}"
    console.print(head, highlight=False, markup=False, soft_wrap=True)
    if one.results:
        names = (t("dataset"), f"mean@{one.n_rollouts}", t("samples"), t("failed"))
        table = Table(*names, box=None, pad_edge=False, header_style="bold")
        for result in one.results:
            table.add_row(result.dataset, cell(result.mean), str(result.num_samples), str(result.num_failed))
        print_table(table)
    if one.message:
        console.print(one.message, style="red", markup=False)
