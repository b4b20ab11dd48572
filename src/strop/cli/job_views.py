"""A job's findings, curves and state -> a terminal's tables and live picture, and files of metrics."""

from __future__ import annotations

import csv
import math
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from strop.cli.text import pick, t
from strop.errors import RequestError
from strop.locales import msg
from strop.schema.finding import Text as FindingText
from strop.schema.job import PLANNED_EVENT
from strop.schema.responses import EventInfo, FindingInfo, JobInfo, Point

if TYPE_CHECKING:
    from strop.client import Client


STYLES = {"alarm": "bold red", "warning": "yellow"}


def show_findings(findings: Sequence[FindingInfo], console: Console) -> None:
    """Each with what was seen, why it happens, what to do and what to read."""
    if not findings:
        console.print(t("nothing was found"), highlight=False)
    for one in findings:
        style = "dim" if one.ended_step is not None else STYLES.get(one.severity, "yellow")
        console.print(heading(one), style=style, highlight=False, markup=False, soft_wrap=True)
        rows = (("", one.summary), (t("cause"), one.cause), (t("do"), one.advice))
        for label, text in rows:
            console.print(f"  {label:<6} {said(text)}", highlight=False, markup=False, soft_wrap=True)
        for witness in one.evidence.trajectories:
            console.print(
                f"  {t('read'):<6} {witness.rollout_id}   {witness.note}",
                highlight=False,
                markup=False,
                soft_wrap=True,
                style="dim",
            )


def heading(one: FindingInfo) -> str:
    """Rule, title and steps, in a line."""
    until = t("to {last_step}", last_step=one.last_step) if one.ended_step is not None else t("and holds")
    since = t("from step {step}", step=one.first_step)
    return f"{one.rule}  {said(one.title)}   {since} {until}"


def said(text: FindingText | None) -> str:
    """In the reader's language; of a rule that the server does not know there are no words."""
    return pick(text.en, text.zh) if text is not None else ""


KEY_METRICS = (
    "critic/rewards/mean",
    "validation/data/reward/mean@1",
    "actor/entropy",
    "actor/ppo_kl",
    "actor/pg_clipfrac",
    "actor/grad_norm",
    "trajectory/response_length_non_aborted/mean",
    "trajectory/response_length/clip_ratio",
    "group/frac_zero_std",
    "trace/success_rate/agent/avg",
    "timing/s/step",
    "lm/loss",
)
"""The daily look at a run's health; those that a job does not have are left out."""

_LOOK_S = 1.0
_BARS = "▁▂▃▄▅▆▇█"
_BAD_EVENTS = ("error", "failed", "rolled_back", "not_published", "disk")
_NUM_ERRORS = 4


def watch_job(client: Client, job_id: str, console: Console, *, every_s: float = _LOOK_S) -> JobInfo:
    """Draw until the job has ended; an output that is not a terminal gets the last picture only.

    Raises:
        StropError: there is no such job, or the server is gone for good.
    """
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            job = client.jobs.get(job_id)
            curves = client.jobs.metrics(job_id, list(KEY_METRICS))
            events = client.jobs.events(job_id)
            findings = client.jobs.diagnosis(job_id)
            if console.is_terminal or job.status.final:
                live.update(picture(job, curves, events, findings), refresh=True)
            if job.status.final:
                return job
            time.sleep(every_s)


def picture(
    job: JobInfo,
    curves: Mapping[str, Sequence[Point]],
    events: Sequence[EventInfo],
    findings: Sequence[FindingInfo],
) -> RenderableType:
    """Everything that is known, from top to bottom by what one looks at first."""
    step = max((points[-1].step for points in curves.values() if points), default=0)
    parts: list[RenderableType] = [
        Text(f"{job.job_id}   {job.job_name}   {job.status.value}", style="bold"),
        _progress(job, step, _planned(events)),
        _curve_table(curves),
    ]
    parts += [_finding(one) for one in findings if one.ended_step is None]
    parts += [Text(f"✗ {one.message}", style="red") for one in _errors(job, events)]
    return Group(*parts)


def sparkline(values: Sequence[float | None], width: int = 32) -> str:
    """The newest values as bars between their own least and most; a hole where there was no number.

    >>> sparkline([0.0, 0.5, None, 1.0])
    '▁▅ █'
    """
    newest = list(values)[-width:]
    numbers = [value for value in newest if value is not None and math.isfinite(value)]
    if not numbers:
        return ""
    low, span = min(numbers), max(numbers) - min(numbers)

    def bar(value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return " "
        return _BARS[round((value - low) / span * (len(_BARS) - 1))] if span > 0 else _BARS[0]

    return "".join(bar(value) for value in newest)


def _progress(job: JobInfo, step: int, total: int | None) -> RenderableType:
    if total is None:
        return Text(t("step {step}", step=step))
    row = Table.grid(padding=(0, 2))
    left = _time_left(job, step, total)
    row.add_row(
        ProgressBar(total=total, completed=min(step, total), width=40),
        t("step {step} of {total}", step=step, total=total),
        "" if left is None else t("about {left} left", left=left),
    )
    return row


def _time_left(job: JobInfo, step: int, total: int) -> str | None:
    if job.start_time is None or job.status.final or not 0 < step < total:
        return None
    seconds = (datetime.now(UTC) - job.start_time).total_seconds() / step * (total - step)
    return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.0f} min"


def _curve_table(curves: Mapping[str, Sequence[Point]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name in KEY_METRICS:
        points = curves.get(name)
        if points:
            last = points[-1].value
            shown = "" if last is None else f"{last:.4g}"
            table.add_row(name, sparkline([point.value for point in points]), shown)
    return table


def _finding(one: FindingInfo) -> Text:
    return Text(f"● {heading(one)}: {said(one.summary)}", style=STYLES.get(one.severity, "yellow"))


def _planned(events: Sequence[EventInfo]) -> int | None:
    totals = (one.data.get("total_steps") for one in reversed(events) if one.kind == PLANNED_EVENT)
    return next((total for total in totals if isinstance(total, int)), None)


def _errors(job: JobInfo, events: Sequence[EventInfo]) -> list[EventInfo]:
    bad = [one for one in events if any(word in one.kind for word in _BAD_EVENTS)]
    if job.message:
        bad.append(EventInfo(kind="failed", message=job.message.splitlines()[0], time=datetime.now(UTC)))
    return bad[-_NUM_ERRORS:]


COLUMNS = ("job_id", "metric", "step", "value")


class ExportFormat(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"


class MetricNames(StrEnum):
    STROP = "strop"
    ARK = "ark"


def export_metrics(
    job_id: str, curves: Mapping[str, Sequence[Point]], form: ExportFormat, out: Path | None
) -> None:
    """Write every value; what was measured and is no number is an empty field, or null.

    Raises:
        RequestError: Parquet without a file, or without its library; a file that cannot be written.
    """
    rows = [(job_id, name, point.step, point.value) for name in sorted(curves) for point in curves[name]]
    try:
        if form is ExportFormat.PARQUET:
            _write_parquet(rows, out)
        elif out is None:
            _write_csv(rows, sys.stdout)
        else:
            with out.open("w", newline="", encoding="utf-8") as file:
                _write_csv(rows, file)
    except OSError as error:
        raise RequestError(
            msg("{out!r} cannot be written: {strerror}", out=str(out), strerror=error.strerror)
        ) from error


def _write_csv(rows: Sequence[tuple[object, ...]], file: object) -> None:
    writer = csv.writer(file, lineterminator="\n")  # pyright: ignore[reportArgumentType]
    writer.writerow(COLUMNS)
    writer.writerows(rows)


def _write_parquet(rows: Sequence[tuple[object, ...]], out: Path | None) -> None:
    if out is None:
        raise RequestError(t("Parquet is no text"), fix=t("name a file with --out"))
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise RequestError(
            msg("pyarrow is not installed"), fix=msg("pip install 'strop[parquet]'")
        ) from error
    types = (pa.string(), pa.string(), pa.int64(), pa.float64())
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    arrays = [pa.array(column, type=kind) for column, kind in zip(columns, types, strict=True)]
    pq.write_table(pa.table(arrays, names=list(COLUMNS)), out)
