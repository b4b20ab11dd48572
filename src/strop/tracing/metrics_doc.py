"""Registry -> docs/metrics.md, so that the page cannot say anything else than the code.

Run `python -m strop.tracing.metrics_doc [FILE]` after a declaration changed; a test compares the two.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from strop.schema.metric import Metric
from strop.tracing.ark_view import UNMEASURED, table
from strop.tracing.catalogue import ABSENT
from strop.tracing.metrics import all_metrics

_HEAD = """\
# Metrics

Made from `src/strop/tracing/catalogue` by `python -m strop.tracing.metrics_doc`; change it there.

One value a training step. An empty set gives NaN, which is not 0 and is drawn as a hole. `Aggregation` says
how values of several mini-batches or trajectories become the step's. `Healthy` is a range by algorithm (all,
where none is named); where it is empty, the level depends on the task and only the trend speaks. Parts in
`<angle brackets>` are names that users choose: a function's, a metric's, an error code, a dataset's (`data`
where there is only one).
"""

GROUP_TITLES = {
    "critic": "critic/ · rewards and advantages · 奖励与优势",
    "validation": "validation/ · held-out samples · 验证",
    "actor": "actor/ · policy update · 策略更新",
    "lm": "lm/ · language modelling, offline · 语言建模（离线）",
    "dpo": "dpo/ · preferences, offline · 偏好学习（离线）",
    "mismatch": "mismatch/ · engine against learner · 采样端与训练端之差",
    "trajectory": "trajectory/ · lengths and turns · 长度与轮数",
    "fully_async": "fully_async/ · rollouts across versions · 跨版本采样",
    "group": "group/ · signal in the groups · 组内信号",
    "function": "function/ · failures · 失败",
    "trace": "trace/ · agents and functions · 智能体与函数",
    "timing": "timing/ · seconds · 时间",
    "perf": "perf/ · tokens and rates · 吞吐",
}
"""By the first part of a name: the part, then what the group is about in English and in Chinese."""


def render() -> str:
    """The whole page."""
    parts = [_HEAD]
    for group, members in groupby(all_metrics(), key=lambda metric: metric.name.split("/")[0]):
        rows = "\n".join(_row(metric) for metric in members)
        parts.append(f"## {GROUP_TITLES[group]}\n\n{_TABLE_HEAD}\n{rows}\n{_absent(group)}")
    return "\n".join([*parts, _ark()])


def _ark() -> str:
    """The second names of metrics, and Ark's that have none here."""
    same = [f"| `{theirs}` | `{ours}` |" for theirs, ours in table()]
    others = [f"| `{name}` | {en} | {zh} |" for name, (en, zh) in UNMEASURED.items()]
    return "\n".join([_ARK_HEAD, *same, "", "| Absent | Because | 原因 |", "|---|---|---|", *others, ""])


_ARK_HEAD = """\
## Ark's names · 方舟的指标名

The same curves as Volcano Ark calls them: `strop jobs metrics JOB --names ark`, `naming=ark` of the API, the
switch on the Metrics page. `custom` stands for metrics of functions, which Ark shows by their key alone.

| Ark | here |
|---|---|"""


def _absent(group: str) -> str:
    """Names of other services below a group that have no metric here, and why."""
    rows = [f"| `{name}` | {en} | {zh} |" for name, (en, zh) in ABSENT.items() if name.split("/")[0] == group]
    return "\n".join(["", "| Absent | Because | 原因 |", "|---|---|---|", *rows, ""]) if rows else ""


_TABLE_HEAD = "| Metric | Unit | Aggregation | Healthy | Meaning | 含义 |\n|---|---|---|---|---|---|"


def _row(metric: Metric) -> str:
    cells = (
        f"`{metric.name}`",
        metric.unit,
        metric.aggregation.value,
        _healthy(metric),
        metric.en,
        metric.zh,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _healthy(metric: Metric) -> str:
    ranges = [f"{algorithm}: {_range(*bounds)}" for algorithm, bounds in metric.healthy.items()]
    return "; ".join(ranges).removeprefix("*: ")


def _range(low: float | None, high: float | None) -> str:
    if low is None:
        return f"≤ {high:g}"
    if high is None:
        return f"≥ {low:g}"
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def main(arguments: list[str]) -> None:
    target = Path(arguments[0] if arguments else "docs/metrics.md")
    target.write_text(render(), encoding="utf-8")
    print(f"wrote {target}")


if __name__ == "__main__":
    main(sys.argv[1:])
