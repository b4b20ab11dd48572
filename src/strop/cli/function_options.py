"""Arguments that the commands on local functions share, and what they make of them."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from pydantic import ValidationError

from strop.cli.text import t
from strop.functions import validation_text
from strop.functions.ark import input_of_body, is_ark_body
from strop.functions.hints import input_hints, missing_input
from strop.schema.function import INPUT_OF, FunctionInput, FunctionType
from strop.workers.spec import WorkerSpec

if TYPE_CHECKING:
    from strop.workers.instance import Instance
    from strop.workers.size import PoolSize

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

START_LIMIT_S = 600.0
GRACE_S = 2.0


def spec_of(classpath: str, root: Path, timeout: float) -> WorkerSpec:
    name = classpath.replace(":", ".").rpartition(".")[2] or classpath
    return WorkerSpec(name=name, classpath=classpath, root=root.resolve(), timeout_s=timeout)


@asynccontextmanager
async def local_instance(
    spec: WorkerSpec, *, job_id: str = "local-test", size: PoolSize | None = None
) -> AsyncGenerator[Instance]:
    """An instance that is not started yet; what runs of it is gone at the end."""
    from strop.workers.instance import Instance, new_client

    async with new_client() as client:
        instance = Instance(
            spec,
            job_id=job_id,
            client=client,
            on_line=print_line,
            grace_s=GRACE_S,
            start_limit_s=START_LIMIT_S,
            size=size,
        )
        try:
            yield instance
        finally:
            await instance.close()


def print_line(_component: str, stream: str, text: str) -> None:
    """What a function prints goes to stderr: stdout is for results."""
    print(f"{stream} | {text}", file=sys.stderr, flush=True)


def refuse_contradiction(found: FunctionType, wanted: FunctionType | None, spec: WorkerSpec) -> None:
    if wanted is not None and wanted is not found:
        raise typer.BadParameter(
            t(
                f"{spec.name} is a {found} function, not a {wanted} one",
                f"{spec.name} 是 {found} 函数，不是 {wanted}",
            ),
            param_hint="--type",
        )


def parsed_object(text: str) -> dict[str, Any]:
    """Raises typer.BadParameter for what is no JSON object."""
    try:
        values: object = json.loads(text)
    except (ValueError, RecursionError) as error:
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


def decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(
            t(f"no valid JSON: {error}", f"不是有效的 JSON：{error}"), param_hint="--input"
        ) from error


def typed_input(func_type: FunctionType, values: dict[str, Any]) -> FunctionInput:
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


def told_missing(func_type: FunctionType | None, values: dict[str, Any]) -> str | None:
    """After a call that failed: what the input lacks that every run gives, with an example."""
    if func_type is None or (missing := missing_input(func_type, values)) is None:
        return None
    example = {
        FunctionType.ROLLOUT: '{"messages": [{"role": "user", "content": "..."}]}',
        FunctionType.REWARD: '{"agent_output": {"messages": [{"role": "assistant", "content": "..."}]}}',
        FunctionType.GROUP_REWARD: '{"agent_outputs": [{"messages": [{"role": "assistant", "content": "..."}]}]}',
    }[func_type]
    return t(
        f"the input has no {missing}, which every run gives: the function may fail for that alone\n"
        f"  fix: give it, e.g. {example}",
        f"输入缺少 {missing}，而训练时总会提供：函数失败可能只是因为这一点\n  修正：请补上，例如 {example}",
    )
