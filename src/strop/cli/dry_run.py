"""`strop run --dry-run`: a checked job -> each value and its origin, and what to do next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from strop.cli.next_steps import run_command
from strop.cli.text import t
from strop.config.describing import describe, told_origin
from strop.data.reading import RowFiles

if TYPE_CHECKING:
    from strop.cli.next_steps import Given
    from strop.config.job import JobConfig

_PIPE_WIDTH = 200


def say_ok(config: JobConfig, job: Path, asked: Given, rows_of: RowFiles) -> None:
    """The last line: all is well, with what was looked at, and the command that trains."""
    form = config.training_type
    rows = {
        kind: sum(rows_of.num_rows(Path(one.file_name), form) for one in config.datasets if one.type == kind)
        for kind in ("training", "validation")
    }
    number = len(config.functions)
    loaded = t(f"{number} function{'' if number == 1 else 's'} loaded", f"已加载 {number} 个函数")
    looked = [
        t(f"{rows['training']} training rows", f"训练数据 {rows['training']} 行"),
        *(
            [t(f"{rows['validation']} validation rows", f"验证数据 {rows['validation']} 行")]
            if rows["validation"]
            else []
        ),
        *([loaded] if number else []),
    ]
    print(t("ok: ", "正常：") + t(", ", "，").join(looked))
    print(t("next: ", "接下来：") + run_command(job, asked))


def print_resolved(config: JobConfig, *, as_json: bool) -> None:
    """Every value as the run would use it, with its origin. A pipe gets whole lines, however long."""
    described = describe(config)
    if as_json:
        print(json.dumps(described, indent=2, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in (t("key", "键"), t("value", "值"), t("from", "来源")):
        table.add_column(title, overflow="fold")
    for key, origin in described["origins"].items():
        if key.startswith("training.resources.") and origin == "default":
            continue  # a cloud's words, which choose nothing here
        value = value_at(described, key)
        shown = "-" if value is None else value if isinstance(value, str) else json.dumps(value)
        style = "dim" if origin.startswith("default") else ""
        table.add_row(
            key.removeprefix("training.hyper_parameters."), shown, t(*told_origin(origin)), style=style
        )
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, _PIPE_WIDTH)
    console.print(table)


def value_at(described: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key, as `functions[0].timeout`."""
    value: Any = described
    for part in key.replace("[", ".").replace("]", "").split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value
