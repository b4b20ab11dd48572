"""`strop functions register|list|start|stop|logs|delete`: the functions of a server, beside those of this
machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from strop.cli.functions import app
from strop.cli.remote import AsJson, ServerOption, open_client, plain, print_json, show_list, show_one
from strop.cli.text import t
from strop.schema.function import FunctionType

FunctionArgument = Annotated[str, typer.Argument(metavar="FUNCTION_ID", help="ro-..., rw-..., grw-...")]
InstanceArgument = Annotated[
    str, typer.Argument(metavar="INSTANCE_ID", help="ro-ins-..., rw-ins-..., grw-ins-...")
]


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
        "Replace an instance's workers one after another; calls go on.", "滚动重启实例的 worker，调用不中断。"
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
