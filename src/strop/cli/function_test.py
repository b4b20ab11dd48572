"""`strop functions test` and `bench`: run or measure a user function on this machine, before a training run does."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from strop.cli.function_calls import (
    ClassPath,
    Policy,
    RootOption,
    TimeoutOption,
    TypeOption,
    decoded,
    json_text,
    local_instance,
    parsed_object,
    pretty,
    read_rows,
    refuse_contradiction,
    show_rows,
    spec_of,
    told_missing,
    try_rows,
    typed_input,
)
from strop.cli.remote import ServerOption, open_client
from strop.cli.text import t, told
from strop.errors import FunctionError
from strop.schema.function import FunctionType, TaskStatus

if TYPE_CHECKING:
    from strop.schema.reply import FunctionReply
    from strop.workers.spec import WorkerSpec


REGISTERED = re.compile(r"(ro|rw|grw)-(ins-)?[0-9a-f]{24}")
"""Ids of functions and instances of a server; no class path looks like that."""

_KIND_OF = {"ro": FunctionType.ROLLOUT, "rw": FunctionType.REWARD, "grw": FunctionType.GROUP_REWARD}


def try_out(
    classpath: ClassPath,
    input_file: Annotated[
        typer.FileBinaryRead,
        typer.Option(
            "--input",
            metavar="FILE",
            help=t("JSON input, or .jsonl with one a line; - reads stdin."),
        ),
    ],
    func_type: TypeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help=t("Print the raw output."))] = False,
    script: Annotated[
        Path | None,
        typer.Option(
            "--script",
            exists=True,
            dir_okay=False,
            help=t(
                "JSON list of answers of a scripted model, for rollouts; each row gets them from the start."
            ),
        ),
    ] = None,
    model_url: Annotated[
        str | None,
        typer.Option(
            "--model-url",
            help=t("OpenAI base URL of a real model, for rollouts; its key is read from OPENAI_API_KEY."),
        ),
    ] = None,
    model_name: Annotated[
        str, typer.Option("--model-name", help=t("As the model's endpoint calls it."))
    ] = "default",
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            dir_okay=False,
            help=t("Write what rollouts gave as inputs of reward functions (.jsonl)."),
        ),
    ] = None,
    root: RootOption = Path(),
    timeout: TimeoutOption = 60.0,
    server: ServerOption = None,
) -> None:
    from strop.schema.reply import FunctionReply

    text = decoded(input_file.read())
    policy = Policy(script=script, url=model_url, name=model_name)
    many = str(getattr(input_file, "name", "-")).endswith(".jsonl")
    if many or policy.given or save is not None:
        if REGISTERED.fullmatch(classpath):
            raise typer.BadParameter(
                t("rows are tried on this machine; give a class path"),
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
    from strop.schema.reply import FunctionReply

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Of all calls that were answered in `seconds`."""

    seconds: float
    latencies_s: tuple[float, ...]
    errors: dict[str, int]

    @property
    def calls_per_s(self) -> float:
        return len(self.latencies_s) / self.seconds

    def percentile_s(self, share: float) -> float:
        """Nearest rank."""
        rank = max(1, -int(-share * len(self.latencies_s) // 1))
        return sorted(self.latencies_s)[rank - 1]


def bench(
    classpath: ClassPath,
    input_file: Annotated[
        typer.FileBinaryRead,
        typer.Option(
            "--input",
            metavar="FILE",
            help=t("JSON input, or .jsonl with one a line, taken in turn."),
        ),
    ],
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=4096, help=t("Calls at once."))
    ] = 64,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help=t("How long to measure."))] = 5.0,
    workers: Annotated[int, typer.Option("--workers", min=1, max=256, help=t("Worker processes."))] = 1,
    root: RootOption = Path(),
    timeout: TimeoutOption = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help=t("Print JSON."))] = False,
) -> None:
    text = decoded(input_file.read())
    rows = (
        read_rows(text) if str(getattr(input_file, "name", "-")).endswith(".jsonl") else [parsed_object(text)]
    )
    spec = spec_of(classpath, root, timeout)
    try:
        measured = asyncio.run(_measure(spec, rows, concurrency, seconds, workers))
    except FunctionError as error:
        typer.echo(f"not_started: {told(error.told)}", err=True)
        raise typer.Exit(1) from error
    _print(measured, as_json=as_json)


async def _measure(
    spec: WorkerSpec, rows: list[dict[str, object]], concurrency: int, seconds: float, workers: int
) -> Measured:
    from strop.workers.size import PoolSize

    size = PoolSize(initial=workers, smallest=workers, largest=workers, queue=2 * concurrency)
    async with local_instance(spec, job_id="local-bench", size=size) as instance:
        kind = await instance.start()
        while instance.reading().workers < workers:  # noqa: ASYNC110 - other processes' doing
            await asyncio.sleep(0.05)
        payloads = [typed_input(kind, row) for row in rows]
        await asyncio.gather(*(instance.call(payloads[0]) for _ in range(concurrency)))  # connections
        replies: list[FunctionReply] = []
        began = time.monotonic()

        async def caller(number: int) -> None:
            while time.monotonic() - began < seconds:
                replies.append(await instance.call(payloads[number % len(payloads)]))
                number += concurrency

        await asyncio.gather(*(caller(number) for number in range(concurrency)))
        took = time.monotonic() - began
    return Measured(
        seconds=took,
        latencies_s=tuple(reply.latency_s for reply in replies),
        errors=dict(Counter(reply.error_code or "failed" for reply in replies if not reply.ok)),
    )


def _print(measured: Measured, *, as_json: bool) -> None:
    numbers = {
        "calls": len(measured.latencies_s),
        "seconds": round(measured.seconds, 3),
        "calls_per_s": round(measured.calls_per_s, 1),
        "p50_ms": round(measured.percentile_s(0.5) * 1000, 2),
        "p95_ms": round(measured.percentile_s(0.95) * 1000, 2),
        "p99_ms": round(measured.percentile_s(0.99) * 1000, 2),
    }
    if as_json:
        typer.echo(json.dumps(numbers | {"errors": measured.errors}))
        return
    table = Table(show_header=False)
    for name, value in numbers.items():
        table.add_row(name, f"{value:g}")
    for code, count in measured.errors.items():
        table.add_row(f"{t('failed')}: {code}", str(count))
    Console(markup=False, emoji=False).print(table)
