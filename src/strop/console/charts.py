"""Names of recorded metrics -> the charts that show them, by group, explained by the registry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from strop.tracing.ark_view import by_ark_name
from strop.tracing.metrics import UnknownMetricError, metric
from strop.tracing.metrics_doc import GROUP_TITLES

MUST_SEE = (
    "critic/rewards",
    "validation/",
    "actor/loss",
    "actor/entropy",
    "actor/ppo_kl",
    "actor/pg_clipfrac",
    "trajectory/response_length_non_aborted",
    "trajectory/response_length/clip_ratio",
    "trace/success_rate/agent/avg",
    "timing/s/step",
)
"""What is looked at first. A name that ends in a slash is of every validation's mean@1."""

_SPREAD = ("mean", "min", "max")
_DEEPER = {
    "trace/reward": ("trace/reward/ · reward functions", "trace/reward/ · 各奖励函数"),
    "trace/reward_metrics": (
        "trace/reward_metrics/ · reward metrics",
        "trace/reward_metrics/ · 奖励自定义指标",
    ),
    "trace/rollout_metrics": (
        "trace/rollout_metrics/ · rollout metrics",
        "trace/rollout_metrics/ · rollout 自定义指标",
    ),
    "timing/s": ("timing/s/ · seconds", "timing/s/ · 秒"),
    "timing/ms": ("timing/ms/ · milliseconds", "timing/ms/ · 毫秒"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A curve, or the mean of a quantity with its extremes as a band. `healthy` is (low, high)."""

    title: str
    name: str
    low: str | None = None
    high: str | None = None
    unit: str = ""
    healthy: tuple[float | None, float | None] | None = None
    en: str = ""
    zh: str = ""

    @property
    def names(self) -> list[str]:
        return [name for name in (self.name, self.low, self.high) if name is not None]


@dataclass(slots=True)
class ChartGroup:
    key: str
    en: str
    zh: str
    charts: list[Chart] = field(default_factory=list[Chart])


def chart_groups(names: Iterable[str], algorithm: str) -> list[ChartGroup]:
    """Every name once in its group; those to look at first stand in a group before them, too."""
    groups: dict[str, ChartGroup] = {}
    charts = charts_of(sorted(set(names)), algorithm)
    for chart in charts:
        key = _group(chart.name)
        if key not in groups:
            groups[key] = ChartGroup(key, *_title(key))
        groups[key].charts.append(chart)
    first = ChartGroup("first", "Look here first", "必看指标", _first(charts))
    order = list(GROUP_TITLES)
    ordered = sorted(groups.values(), key=lambda one: (_place(order, one.key), one.key))
    return [first, *ordered] if first.charts else ordered


def ark_chart_groups(names: Iterable[str], algorithm: str) -> list[ChartGroup]:
    """The metrics that Ark has, under its names and in its groups: what it shows first, then the rest."""
    groups: dict[str, ChartGroup] = {}
    first = ChartGroup("first", "Look here first", "必看指标")
    for theirs, ours in by_ark_name(sorted(set(names))).items():
        chart = replace(_chart(ours, ours, algorithm), title=theirs)
        key = "/".join(theirs.split("/")[:2])
        groups.setdefault(key, ChartGroup(key, f"{key}/", f"{key}/")).charts.append(chart)
        if theirs.endswith("/final_rewards"):
            first.charts.append(chart)
    ordered = sorted(groups.values(), key=lambda one: (one.key.startswith("test/"), one.key))
    return [first, *ordered] if first.charts else ordered


def charts_of(names: Sequence[str], algorithm: str) -> list[Chart]:
    """Mean, min and max of one quantity make one chart."""
    there = set(names)
    made: list[Chart] = []
    for name in names:
        base, _, last = name.rpartition("/")
        if last in _SPREAD and f"{base}/mean" in there:
            if last == "mean":
                low, high = (f"{base}/{end}" if f"{base}/{end}" in there else None for end in ("min", "max"))
                made.append(_chart(base, name, algorithm, low=low, high=high))
        else:
            made.append(_chart(name, name, algorithm))
    return made


def _chart(
    title: str, name: str, algorithm: str, *, low: str | None = None, high: str | None = None
) -> Chart:
    try:
        declared = metric(name)
    except UnknownMetricError:  # of another Strop, or a plugin's
        return Chart(title=title, name=name, low=low, high=high)
    healthy = declared.healthy.get(algorithm) or declared.healthy.get("*")
    return Chart(
        title=title,
        name=name,
        low=low,
        high=high,
        unit=declared.unit,
        healthy=healthy,
        en=declared.en,
        zh=declared.zh,
    )


def _first(charts: Sequence[Chart]) -> list[Chart]:
    found: list[Chart] = []
    for wanted in MUST_SEE:
        for chart in charts:
            if chart.title == wanted or (
                wanted.endswith("/")
                and chart.name.startswith(wanted)
                and chart.name.endswith("/reward/mean@1")
            ):
                found.append(chart)
    return found


def _group(name: str) -> str:
    parts = name.split("/")
    deeper = "/".join(parts[:2])
    return deeper if deeper in _DEEPER else parts[0]


def _title(key: str) -> tuple[str, str]:
    if key in _DEEPER:
        return _DEEPER[key]
    parts = GROUP_TITLES.get(key, f"{key}/").split(" · ")
    prefix, en, zh = parts[0], parts[1] if len(parts) > 1 else "", parts[-1] if len(parts) > 2 else ""
    return f"{prefix} · {en}".rstrip(" ·"), f"{prefix} · {zh}".rstrip(" ·")


def _place(order: list[str], key: str) -> int:
    first = key.split("/")[0]
    return order.index(first) if first in order else len(order)
