"""`strop functions`: run a user function on this machine, to try it before a training run does."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from strop.cli.function_bench import bench
from strop.cli.function_options import (
    ClassPath,
    RootOption,
    TimeoutOption,
    TypeOption,
    decoded,
    local_instance,
    parsed_object,
    refuse_contradiction,
    spec_of,
    told_missing,
    typed_input,
)
from strop.cli.function_output import json_text, pretty
from strop.cli.function_rows import Policy, read_rows, show_rows, try_rows
from strop.cli.function_serve import serve
from strop.cli.remote import ServerOption, open_client
from strop.cli.text import t
from strop.errors import FunctionError
from strop.schema.function import FunctionType, TaskStatus
from strop.schema.reply import FunctionReply
from strop.workers.spec import WorkerSpec

app = typer.Typer(
    no_args_is_help=True,
    help=t(
        "Rollout, reward and group-reward functions: try them here, register them on a server.",
        "rollout、reward 与 group reward 函数：在本机试运行，或注册到服务。",
    ),
)

REGISTERED = re.compile(r"(ro|rw|grw)-(ins-)?[0-9a-f]{24}")
"""Ids of functions and instances of a server; no class path looks like that."""

_KIND_OF = {"ro": FunctionType.ROLLOUT, "rw": FunctionType.REWARD, "grw": FunctionType.GROUP_REWARD}

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


@app.command(
    "test",
    help=t(
        "Run one call, or every row of a .jsonl, in a real worker and print what came of it; of a function or instance id, on the server. Exit status: 0 ok, 1 failed, 2 wrong usage.",
        "在真实的 worker 中执行一次调用（或 .jsonl 的每一行）并打印结果；给出函数或实例 id 时在服务上执行。退出码：0 成功，1 失败，2 用法错误。",
    ),
)
def try_out(
    classpath: ClassPath,
    input_file: Annotated[
        typer.FileBinaryRead,
        typer.Option(
            "--input",
            metavar="FILE",
            help=t(
                "JSON input, or .jsonl with one a line; - reads stdin.",
                "JSON 输入，或每行一个输入的 .jsonl；- 表示标准输入。",
            ),
        ),
    ],
    func_type: TypeOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help=t("Print the raw output.", "打印原始输出。"))
    ] = False,
    script: Annotated[
        Path | None,
        typer.Option(
            "--script",
            exists=True,
            dir_okay=False,
            help=t(
                "JSON list of answers of a scripted model, for rollouts; each row gets them from the start.",
                "脚本化模型的回答（JSON 列表），用于 rollout；每行从头使用。",
            ),
        ),
    ] = None,
    model_url: Annotated[
        str | None,
        typer.Option(
            "--model-url",
            help=t(
                "OpenAI base URL of a real model, for rollouts; its key is read from OPENAI_API_KEY.",
                "真实模型的 OpenAI base URL，用于 rollout；密钥取自 OPENAI_API_KEY。",
            ),
        ),
    ] = None,
    model_name: Annotated[
        str, typer.Option("--model-name", help=t("As the model's endpoint calls it.", "端点上的模型名。"))
    ] = "default",
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            dir_okay=False,
            help=t(
                "Write what rollouts gave as inputs of reward functions (.jsonl).",
                "把 rollout 的结果写成 reward 函数的输入（.jsonl）。",
            ),
        ),
    ] = None,
    root: RootOption = Path(),
    timeout: TimeoutOption = 60.0,
    server: ServerOption = None,
) -> None:
    text = decoded(input_file.read())
    policy = Policy(script=script, url=model_url, name=model_name)
    many = str(getattr(input_file, "name", "-")).endswith(".jsonl")
    if many or policy.given or save is not None:
        if REGISTERED.fullmatch(classpath):
            raise typer.BadParameter(
                t("rows are tried on this machine; give a class path", "多行测试在本机进行；请给出类路径"),
                param_hint="CLASSPATH",
            )
        rows = read_rows(text) if many else [parsed_object(text)]
        with policy:
            tried = asyncio.run(try_rows(spec_of(classpath, root, timeout), func_type, rows, policy))
        raise typer.Exit(show_rows(tried, as_json=as_json, save=save))
    values, kind = parsed_object(text), func_type
    try:
        if REGISTERED.fullmatch(classpath):
            reply = _call_registered(classpath, func_type, values, server)
            kind = func_type or _KIND_OF[classpath.partition("-")[0]]
        else:
            kind, reply = asyncio.run(_call_once(spec_of(classpath, root, timeout), func_type, values))
    except FunctionError as error:
        kind, reply = None, FunctionReply(error=str(error), error_code="not_started")
    if as_json:
        typer.echo(json_text(reply))
    if not reply.ok:
        typer.echo(f"{reply.error_code}: {reply.error}", err=True)
        if (missing := told_missing(kind, values)) is not None:
            typer.echo(missing, err=True)
        raise typer.Exit(1)
    if reply.output is not None and not as_json:
        typer.echo("\n".join(pretty(reply.output, reply.latency_s)))


def _call_registered(
    target: str, wanted: FunctionType | None, values: dict[str, Any], server: str | None
) -> FunctionReply:
    with open_client(server) as client:
        began = time.monotonic()
        output = client.functions.call(target, values, func_type=wanted)
    failed = output.error or "failed" if output.status is TaskStatus.FAILED else None
    return FunctionReply(
        output=output,
        error=failed,
        error_code="failed" if failed else None,
        latency_s=time.monotonic() - began,
    )


async def _call_once(
    spec: WorkerSpec, wanted: FunctionType | None, values: dict[str, Any]
) -> tuple[FunctionType, FunctionReply]:
    async with local_instance(spec) as instance:
        func_type = await instance.start()
        refuse_contradiction(func_type, wanted, spec)
        return func_type, await instance.call(typed_input(func_type, values))
