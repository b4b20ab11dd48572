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
from strop.cli.text import t
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
    help=t(
        "Serve one function over HTTP on 127.0.0.1 until Ctrl-C: DashScope's container protocol.",
        "在 127.0.0.1 上以 HTTP（DashScope 容器协议）提供一个函数，Ctrl-C 结束。",
    )
)(serve)
app.command(
    "bench",
    help=t(
        "Measure calls a second and latencies of one function in real workers.",
        "在真实的 worker 中测量一个函数的每秒调用数与延迟。",
    ),
)(bench)


app.command(
    "test",
    help=t(
        "Run one call, or every row of a .jsonl, in a real worker and print what came of it; of a function or instance id, on the server. Exit status: 0 ok, 1 failed, 2 wrong usage.",
        "在真实的 worker 中执行一次调用（或 .jsonl 的每一行）并打印结果；给出函数或实例 id 时在服务上执行。退出码：0 成功，1 失败，2 用法错误。",
    ),
)(try_out)


@app.command(
    "register",
    help=t(
        "Send the code of a function to a server and print its id. Equal code is sent once; the folder is only read.",
        "把函数代码注册到服务并打印其 id。相同代码只上传一次；目录只读不写。",
    ),
)
def register(
    classpath: Annotated[
        str,
        typer.Argument(
            help=t("pkg.mod.Class, or path/file.py:Class.", "pkg.mod.Class，或 path/file.py:Class。")
        ),
    ],
    kind: Annotated[FunctionType, typer.Option("--type", help=t("Its kind.", "函数类型。"))],
    root: Annotated[
        Path,
        typer.Option(
            "--root", exists=True, file_okay=False, help=t("The folder that is sent.", "要上传的目录。")
        ),
    ] = Path(),
    requirements: Annotated[
        str,
        typer.Option(
            help=t(
                "Requirements file below the folder; none if it is not there.",
                "目录内的依赖文件；不存在则无依赖。",
            )
        ),
    ] = "requirements.txt",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help=t("Show what would be sent, send nothing.", "只显示将上传的内容。")),
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
                f"{t('left out', '不上传')}  {one.name}  ({one.reason})",
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


@app.command(
    "list", help=t("List the functions of a server, newest first.", "列出服务上的函数，最新的在前。")
)
def list_(server: ServerOption = None, as_json: AsJson = False) -> None:
    with open_client(server) as client:
        found = client.functions.list()
    columns = [
        (t("function", "函数"), lambda one: one.entity_id),
        (t("kind", "类型"), lambda one: one.type.value),
        (t("class", "类"), lambda one: one.classpath),
        (
            t("instances", "实例"),
            lambda one: " ".join(f"{ins.instance_id} ({ins.state})" for ins in one.instances),
        ),
        (t("created", "创建时间"), lambda one: one.create_time),
    ]
    show_list(found, columns, as_json=as_json)


@app.command(
    "start", help=t("Start an instance of a function and print its id.", "启动函数实例并打印其 id。")
)
def start(function: FunctionArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    with open_client(server) as client:
        made = client.functions.start(function)
    if as_json:
        print_json(plain(made))
    else:
        print(made.instance_id)


@app.command("stop", help=t("End an instance.", "停止实例。"))
def stop(instance: InstanceArgument, server: ServerOption = None) -> None:
    with open_client(server) as client:
        client.functions.stop(instance)
    print(t(f"ended {instance}", f"已停止 {instance}"))


@app.command(
    "restart",
    help=t(
        "Replace an instance's workers one by one, without interrupting calls.",
        "滚动重启实例的 worker，调用不中断。",
    ),
)
def restart(instance: InstanceArgument, server: ServerOption = None) -> None:
    with open_client(server) as client:
        client.functions.restart(instance)
    print(t(f"restarted {instance}", f"已重启 {instance}"))


@app.command("get", help=t("Show one function.", "显示一个函数。"))
def get(function: FunctionArgument, server: ServerOption = None, as_json: AsJson = False) -> None:
    with open_client(server) as client:
        show_one(client.functions.get(function), as_json=as_json)


@app.command("logs", help=t("Print what an instance wrote.", "打印实例的输出。"))
def logs(
    instance: InstanceArgument,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, help=t("The last so many.", "最后多少行。"))
    ] = 100,
    word: Annotated[
        list[str] | None, typer.Option("--grep", help=t("Only lines with this word.", "只显示含此词的行。"))
    ] = None,
    server: ServerOption = None,
) -> None:
    with open_client(server) as client:
        for line in client.functions.logs(instance, keywords=word, last=lines):
            print(line)


@app.command("delete", help=t("Forget a function that has no instances.", "删除没有实例的函数。"))
def delete(function: FunctionArgument, server: ServerOption = None) -> None:
    with open_client(server) as client:
        client.functions.delete(function)
    print(t(f"deleted {function}", f"已删除 {function}"))


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
    from strop.config.loading import load_job

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
