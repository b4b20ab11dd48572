"""Curves -> a table in a file: CSV or Parquet, a row for each metric and step."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from strop.cli.text import t
from strop.errors import RequestError
from strop.schema.responses import Point

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
        raise RequestError(f"{str(out)!r} cannot be written: {error.strerror}") from error


def _write_csv(rows: Sequence[tuple[object, ...]], file: object) -> None:
    writer = csv.writer(file, lineterminator="\n")  # pyright: ignore[reportArgumentType]
    writer.writerow(COLUMNS)
    writer.writerows(rows)


def _write_parquet(rows: Sequence[tuple[object, ...]], out: Path | None) -> None:
    if out is None:
        raise RequestError(
            t("Parquet is no text", "Parquet 不是文本"), fix=t("name a file with --out", "用 --out 指定文件")
        )
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise RequestError("pyarrow is not installed", fix="pip install 'strop[parquet]'") from error
    types = (pa.string(), pa.string(), pa.int64(), pa.float64())
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    arrays = [pa.array(column, type=kind) for column, kind in zip(columns, types, strict=True)]
    pq.write_table(pa.table(arrays, names=list(COLUMNS)), out)
