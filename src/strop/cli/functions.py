"""`strop functions`: register functions on a server and look after them; show how rewards are added up.

The commands that run functions on this machine stand in `cli.function_test`, `cli.function_bench` and
`cli.function_serve`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from strop.cli.function_serve import serve
from strop.cli.function_test import bench, try_out
from strop.cli.remote import AsJson, ServerOption, open_client, plain, print_json, show_list, show_one
from strop.cli.text import t, told
from strop.errors import FunctionError
from strop.schema.function import FunctionType

if TYPE_CHECKING:
    from strop.config.job import FunctionConfig
    from strop.workers.spec import WorkerSpec


app = typer.Typer(no_args_is_help=True)

FunctionArgument = Annotated[str, typer.Argument(metavar="FUNCTION_ID", help="ro-..., rw-..., grw-...")]
InstanceArgument = Annotated[
    str, typer.Argument(metavar="INSTANCE_ID", help="ro-ins-..., rw-ins-..., grw-ins-...")
]

app.command(
    help=t("Serve one function over HTTP on 127.0.0.1 until Ctrl-C: DashScope's container protocol.")
)(serve)
app.command(
    "bench",
    help=t("Measure calls a second and latencies of one function in real workers."),
)(bench)


app.command(
    "test",
    help=t(
        "Run one call, or every row of a .jsonl, in a real worker and print what came "
        "of it; of a function or instance id, on the server. Exit status: 0 ok, 1 "
        "failed, 2 wrong usage."
    ),
)(try_out)


@app.command(
    "register",
    help=t(
        "Send the code of a function to a server and print its id. Equal code is sent "
        "once; the folder is only read."
    ),
)
def register(
    classpath: Annotated[
        str,
        typer.Argument(help=t("pkg.mod.Class, or path/file.py:Class.")),
    ],
    kind: Annotated[FunctionType, typer.Option("--type", help=t("Its kind."))],
    root: Annotated[
        Path,
        typer.Option("--root", exists=True, file_okay=False, help=t("The folder that is sent.")),
    ] = Path(),
    requirements: Annotated[
        str,
        typer.Option(help=t("Requirements file below the folder; none if it is not there.")),
    ] = "requirements.txt",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help=t("Show what would be sent, send nothing.")),
    ] = False,
    server: ServerOption = None,
    as_json: AsJson = False,
) -> None:
    from strop.client.functions import prepare
    from strop.client.tuning import AgenticRLFunctionComponent, checked

    code = {"classpath": classpath, "zipdir": str(root.resolve()), "requirements_path": requirements}
    component = checked(AgenticRLFunctionComponent, {"type": kind, "fcmodel": code}, subject="functions")
    console = Console(stderr=True, markup=False, emoji=False)
    if dry_run:
        (prepared,) = prepare([component], root)
        bundle = prepared.bundle
        if as_json:
            left_out = {one.name: one.reason for one in bundle.left_out}
            print_json(
                {
                    "files": bundle.files,
                    "left_out": left_out,
                    "bytes": len(bundle.content),
                    "sha256": bundle.sha256,
                }
            )
            return
        for name in bundle.files:
            print(name)
        for one in bundle.left_out:
            console.print(
                f"{t('left out')}  {one.name}  ({one.reason})",
                style="dim",
                highlight=False,
                markup=False,
            )
        return
    with open_client(server) as client:
        made = client.functions.register(
            component,
            workspace=root,
            say=lambda text: console.print(text, style="dim", highlight=False, markup=False),
        )
    if as_json:
        print_json(plain(made) | {"layer_code": component.runtime.layer_code})
    else:
        print(made.entity_id)


@app.command("list", help=t("List the functions of a server, newest first."))
def list_(server: ServerOption = None, as_json: AsJson = False) -> None:
    with open_client(server) as client:
        found = client.functions.list()
    columns = [
        (t("function"), lambda one: one.entity_id),
        (t("kind"), lambda one: one.type.value),
        (t("class"), lambda one: one.classpath),
        (
            t("instances"),
            lambda one: " ".join(f"{ins.instance_id} ({ins.state})" for ins in one.instances),
        ),
        (t("created"), lambda one: one.create_time),
    ]
    show_list(found, columns, as_json=as_json)


@app.command("start", help=t("Start an instance of a function and print its id."))
def start(function: FunctionArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    with open_client(server) as client:
        made = client.functions.start(function)
    if as_json:
        print_json(plain(made))
    else:
        print(made.instance_id)


@app.command("stop", help=t("End an instance."))
def stop(instance: InstanceArgument, server: ServerOption = None) -> None:
    with open_client(server) as client:
        client.functions.stop(instance)
    print(t("ended {instance}", instance=instance))


@app.command(
    "restart",
    help=t("Replace an instance's workers one by one, without interrupting calls."),
)
def restart(instance: InstanceArgument, server: ServerOption = None) -> None:
    with open_client(server) as client:
        client.functions.restart(instance)
    print(t("restarted {instance}", instance=instance))


@app.command("get", help=t("Show one function."))
def get(function: FunctionArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    with open_client(server) as client:
        show_one(client.functions.get(function), as_json=as_json)


@app.command("logs", help=t("Print what an instance wrote."))
def logs(
    instance: InstanceArgument,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help=t("The last so many."))] = 100,
    word: Annotated[list[str] | None, typer.Option("--grep", help=t("Only lines with this word."))] = None,
    server: ServerOption = None,
) -> None:
    with open_client(server) as client:
        for line in client.functions.logs(instance, keywords=word, last=lines):
            print(line)


@app.command("delete", help=t("Forget a function that has no instances."))
def delete(function: FunctionArgument, server: ServerOption = None) -> None:
    with open_client(server) as client:
        client.functions.delete(function)
    print(t("deleted {function}", function=function))


FORMULA = "reward = sum(weight x share x score)"

_START_LIMIT_S = 600.0


@app.command(
    help=t(
        "Show how rewards are added up: the functions of a job file, or the parts of "
        "one class. Loads them to ask."
    )
)
def show(
    what: Annotated[
        str,
        typer.Argument(
            metavar="JOB|CLASSPATH",
            help=t("job.yaml, or a class path."),
        ),
    ],
    root: Annotated[
        Path,
        typer.Option(
            "--root",
            exists=True,
            file_okay=False,
            help=t("Folder that a class path starts from."),
        ),
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    from strop.config.loading import load_job

    if what.endswith((".yaml", ".yml")):
        config = load_job(Path(what))
        functions = [one for one in config.functions if one.type is not FunctionType.ROLLOUT]
        workspace = Path(config.workspace_dir)
    else:
        functions = [_alone(what)]
        workspace = root.resolve()
    if not functions:
        print(t("no reward functions"))
        return
    try:
        parts = asyncio.run(_parts(functions, workspace))
    except FunctionError as error:
        typer.echo(told(error.told), err=True)
        raise typer.Exit(1) from error
    rows = [row for one, found in zip(functions, parts, strict=True) for row in _rows(one, found)]
    if as_json:
        print_json({"formula": FORMULA, "parts": rows})
        return
    table = Table(box=None, pad_edge=False)
    for title in (t("function"), t("part")):
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
    from strop.config.job import FunctionConfig

    return FunctionConfig.model_validate({"type": FunctionType.REWARD, "fcmodel": {"classpath": classpath}})


async def _parts(functions: list[FunctionConfig], workspace: Path) -> list[dict[str, float]]:
    """The weights of each function's parts, as its worker tells them."""
    from strop.workers.functions import worker_spec

    alone = len(functions) == 1
    specs = [worker_spec(one, workspace) for one in functions]
    told = await asyncio.gather(*(_ask(spec, any_kind=alone) for spec in specs), return_exceptions=True)
    for one in told:
        if isinstance(one, BaseException):
            raise one
    return [one for one in told if isinstance(one, dict)]


async def _ask(spec: WorkerSpec, *, any_kind: bool) -> dict[str, float]:
    from dataclasses import replace

    from strop.workers.masking import Mask
    from strop.workers.process import WorkerProcess

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
