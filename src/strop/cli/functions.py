"""`strop functions`: run a user function on this machine, to try it before a training run does."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import sys
import time
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from pydantic import ValidationError

from strop.cli.remote import ServerOption, open_client
from strop.cli.text import t
from strop.errors import FunctionError
from strop.functions import validation_text
from strop.functions.ark import input_of_body, is_ark_body
from strop.functions.hints import input_hints
from strop.runtime.spec import WorkerSpec
from strop.schema.function import (
    INPUT_OF,
    FunctionInput,
    FunctionOutput,
    FunctionType,
    GroupRewardOutput,
    Reward,
    RewardOutput,
    TaskStatus,
)
from strop.schema.reply import FunctionReply

app = typer.Typer(
    no_args_is_help=True,
    help=t(
        "Rollout, reward and group-reward functions: try them here, register them on a server.",
        "rollout、reward 与 group reward 函数：在本机试运行，或注册到服务。",
    ),
)

ClassPath = Annotated[
    str,
    typer.Argument(
        metavar="CLASSPATH",
        help=t("pkg.mod.Class, or path/file.py:Class.", "pkg.mod.Class，或 path/file.py:Class。"),
    ),
]
TypeOption = Annotated[
    FunctionType | None,
    typer.Option(
        "--type",
        help=t("Must agree with the class; taken from it if left out.", "须与类一致；省略时由类推断。"),
    ),
]
RootOption = Annotated[
    Path,
    typer.Option(
        "--root",
        file_okay=False,
        exists=True,
        help=t("Folder that the classpath and the imports start from.", "classpath 与 import 的起始目录。"),
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, help=t("Seconds one call may take.", "单次调用的时限（秒）。"))
]

REGISTERED = re.compile(r"(ro|rw|grw)-(ins-)?[0-9a-f]{24}")
"""Ids of functions and instances of a server; no class path looks like that."""

_START_LIMIT_S = 600.0
_GRACE_S = 2.0


@app.command(
    help=t(
        "Serve one function over HTTP on 127.0.0.1 until Ctrl-C.",
        "在 127.0.0.1 上以 HTTP 提供一个函数，Ctrl-C 结束。",
    )
)
def serve(
    classpath: ClassPath,
    func_type: TypeOption = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help=t("0 takes a free one.", "0 表示任选空闲端口。"))
    ] = 0,
    root: RootOption = Path(),
    timeout: TimeoutOption = 600.0,
) -> None:
    # Only here: `strop --help` needs no web server.
    from strop.runtime.worker import end_process, prepare

    spec = _spec(classpath, root, timeout)
    prepare(spec)
    code = 0
    try:
        asyncio.run(_serve(spec, func_type, port))
    except KeyboardInterrupt:
        pass
    except OSError as error:
        typer.echo(t(f"cannot listen on port {port}: {error}", f"无法监听端口 {port}：{error}"), err=True)
        code = 1
    except FunctionError as error:
        typer.echo(str(error), err=True)
        code = 1
    end_process(code)


@app.command(
    "test",
    help=t(
        "Run one call in a real worker and print its output; of a function or instance id, on the server. Exit status: 0 ok, 1 failed, 2 wrong usage.",
        "在真实的 worker 中执行一次调用并打印输出；给出函数或实例 id 时在服务上执行。退出码：0 成功，1 失败，2 用法错误。",
    ),
)
def try_once(
    classpath: ClassPath,
    input_file: Annotated[
        typer.FileBinaryRead,
        typer.Option(
            "--input", metavar="FILE", help=t("JSON input; - reads stdin.", "JSON 输入；- 表示标准输入。")
        ),
    ],
    func_type: TypeOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help=t("Print the raw output.", "打印原始输出。"))
    ] = False,
    root: RootOption = Path(),
    timeout: TimeoutOption = 60.0,
    server: ServerOption = None,
) -> None:
    values = _read_input(input_file.read())
    try:
        if REGISTERED.fullmatch(classpath):
            reply = _call_registered(classpath, func_type, values, server)
        else:
            reply = asyncio.run(_call_once(_spec(classpath, root, timeout), func_type, values))
    except FunctionError as error:
        reply = FunctionReply(error=str(error), error_code="not_started")
    if as_json:
        typer.echo(_json_text(reply))
    if not reply.ok:
        typer.echo(f"{reply.error_code}: {reply.error}", err=True)
        raise typer.Exit(1)
    if reply.output is not None and not as_json:
        typer.echo("\n".join(_pretty(reply.output, reply.latency_s)))


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


def _spec(classpath: str, root: Path, timeout: float) -> WorkerSpec:
    name = classpath.replace(":", ".").rpartition(".")[2] or classpath
    return WorkerSpec(name=name, classpath=classpath, root=root.resolve(), timeout_s=timeout)


async def _serve(spec: WorkerSpec, wanted: FunctionType | None, port: int) -> None:
    from strop.runtime.app import create_app
    from strop.runtime.hosting import open_host
    from strop.runtime.listening import listen, serve

    host = await open_host(spec)
    _refuse_contradiction(host.func_type, wanted, spec)
    listener = listen(port)
    token = secrets.token_urlsafe(24)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    header = f"-H 'Authorization: Bearer {token}'"
    print(
        t(f"{host.func_type} function {host.class_name}", f"{host.func_type} 函数 {host.class_name}"),
        f"  URL    {url}/api/v1",
        f"  token  {token}",
        t("try it:", "试一试："),
        f"  curl -s {url}/api/v1 {header} -H 'Content-Type: application/json' -d @input.json",
        f"  curl -s {url}/health {header}",
        t("Ctrl-C ends it.", "按 Ctrl-C 结束。"),
        sep="\n",
        flush=True,
    )
    await serve(create_app(host, token), listener)


def _read_input(content: bytes) -> dict[str, Any]:
    try:
        values: object = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise typer.BadParameter(
            t(f"no valid JSON: {error}", f"不是有效的 JSON：{error}"), param_hint="--input"
        ) from error
    if not isinstance(values, dict):
        found = type(values).__name__
        raise typer.BadParameter(
            t(f"expected a JSON object, found {found}", f"应为 JSON 对象，实际是 {found}"),
            param_hint="--input",
        )
    return cast("dict[str, Any]", values)


async def _call_once(spec: WorkerSpec, wanted: FunctionType | None, values: dict[str, Any]) -> FunctionReply:
    from strop.runtime.instance import Instance, new_client

    async with new_client() as client:
        instance = Instance(
            spec,
            job_id="local-test",
            client=client,
            on_line=lambda _component, stream, text: print(f"{stream} | {text}", file=sys.stderr, flush=True),
            grace_s=_GRACE_S,
            start_limit_s=_START_LIMIT_S,
        )
        try:
            func_type = await instance.start()
            _refuse_contradiction(func_type, wanted, spec)
            return await instance.call(_typed_input(func_type, values))
        finally:
            await instance.close()


def _refuse_contradiction(found: FunctionType, wanted: FunctionType | None, spec: WorkerSpec) -> None:
    if wanted is not None and wanted is not found:
        raise typer.BadParameter(
            t(
                f"{spec.name} is a {found} function, not a {wanted} one",
                f"{spec.name} 是 {found} 函数，不是 {wanted}",
            ),
            param_hint="--type",
        )


def _typed_input(func_type: FunctionType, values: dict[str, Any]) -> FunctionInput:
    given = values.get("func_type", func_type)
    if given != func_type:
        raise typer.BadParameter(
            t(
                f"its func_type is {given}, but the class is a {func_type} function",
                f"其 func_type 为 {given}，而该类是 {func_type} 函数",
            ),
            param_hint="--input",
        )
    if func_type is FunctionType.GROUP_REWARD and is_ark_body(values):
        try:
            values = input_of_body(values)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--input") from error
    else:
        for hint in input_hints(func_type, values):
            typer.echo(t(f"warning: {hint}", f"警告：{hint}"), err=True)
    try:
        return INPUT_OF[func_type].model_validate({**values, "func_type": func_type})
    except ValidationError as error:
        raise typer.BadParameter(validation_text(error, show_values=False), param_hint="--input") from error


def _json_text(reply: FunctionReply) -> str:
    if reply.output is not None:
        ark = (reply.output.model_extra or {}).get(
            "ark_reply"
        )  # asked as Ark asks, so answered as Ark answers
        return json.dumps(ark, ensure_ascii=False) if ark is not None else reply.output.model_dump_json()
    return json.dumps(
        {"status": "failed", "error": reply.error, "error_code": reply.error_code}, ensure_ascii=False
    )


def _pretty(output: FunctionOutput, latency_s: float) -> list[str]:
    """For people: what was scored or said, a line each."""
    lines = [f"{output.status.value} ({latency_s * 1000:.0f} ms)"]
    if isinstance(output, RewardOutput):
        lines += _reward_lines(output.reward)
    elif isinstance(output, GroupRewardOutput):
        for index, reward in enumerate(output.reward.rewards):
            lines += [f"[{index}]", *_reward_lines(reward)]
    elif output.agent_output is not None:
        for message in output.agent_output.messages or []:
            lines.append(f"  {message.get('role', '?'):<10} {_message_text(message)}")
        for name in ("rollout_metrics", "rollout_extra", "reward_score"):
            value = getattr(output.agent_output, name)
            if value not in (None, {}):
                lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False)}")
    for name, value in (output.model_extra or {}).items():
        if name == "ark_reply":
            continue
        lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False, default=str)}")
    return lines


def _reward_lines(reward: Reward) -> list[str]:
    metrics = [f"  {name:<20} {value:g}" for name, value in (reward.reward_metrics or {}).items()]
    return [f"  {'reward_score':<20} {reward.reward_score:g}", *metrics]


def _message_text(message: dict[str, Any]) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""
    calls = message.get("tool_calls")
    return f"{text} {json.dumps(calls, ensure_ascii=False)}".strip() if calls else text
