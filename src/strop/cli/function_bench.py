"""`strop functions bench`: how many calls a second a function answers in real workers, and how late."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from strop.cli.function_options import (
    ClassPath,
    RootOption,
    TimeoutOption,
    decoded,
    local_instance,
    parsed_object,
    spec_of,
    typed_input,
)
from strop.cli.function_rows import read_rows
from strop.cli.text import t
from strop.errors import FunctionError
from strop.schema.reply import FunctionReply
from strop.workers.spec import WorkerSpec


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
            help=t(
                "JSON input, or .jsonl with one a line, taken in turn.",
                "JSON 输入，或每行一个输入的 .jsonl，轮流使用。",
            ),
        ),
    ],
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=4096, help=t("Calls at once.", "并发调用数。"))
    ] = 64,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, help=t("How long to measure.", "测量时长（秒）。"))
    ] = 5.0,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=256, help=t("Worker processes.", "worker 进程数。"))
    ] = 1,
    root: RootOption = Path(),
    timeout: TimeoutOption = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help=t("Print JSON.", "输出 JSON。"))] = False,
) -> None:
    text = decoded(input_file.read())
    rows = (
        read_rows(text) if str(getattr(input_file, "name", "-")).endswith(".jsonl") else [parsed_object(text)]
    )
    spec = spec_of(classpath, root, timeout)
    try:
        measured = asyncio.run(_measure(spec, rows, concurrency, seconds, workers))
    except FunctionError as error:
        typer.echo(f"not_started: {error}", err=True)
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
        table.add_row(f"{t('failed', '失败')}: {code}", str(count))
    Console(markup=False, emoji=False).print(table)
