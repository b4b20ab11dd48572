"""Short forms for declaring a metric, or the family of one quantity, in both languages.

English and Chinese phrases name the quantity of one trajectory or token; `spread` and `average` say over what
it is taken.
"""

from __future__ import annotations

from strop.schema.metric import Aggregation, Metric

Range = tuple[float | None, float | None]

STEP_TRAJECTORIES = ("the step's trajectories", "本步全部轨迹")

_SPREAD = (
    (Aggregation.MEAN, "mean", "平均值"),
    (Aggregation.MAX, "largest", "最大值"),
    (Aggregation.MIN, "smallest", "最小值"),
)


def metric(
    name: str,
    unit: str,
    en: str,
    zh: str,
    *,
    how: Aggregation = Aggregation.MEAN,
    healthy: dict[str, Range] | None = None,
) -> Metric:
    return Metric(name=name, unit=unit, aggregation=how, en=en, zh=zh, healthy=healthy or {})


def spread(
    name: str, unit: str, en: str, zh: str, *, over: tuple[str, str] = STEP_TRAJECTORIES
) -> tuple[Metric, ...]:
    """`name`/mean, /max and /min. NaN when the set is empty."""
    return tuple(
        metric(
            f"{name}/{how.value}",
            unit,
            f"{en} ({en_how} over {over[0]}).",
            f"{zh}（{over[1]}上的{zh_how}）。",
            how=how,
        )
        for how, en_how, zh_how in _SPREAD
    )


def average(
    name: str,
    unit: str,
    en: str,
    zh: str,
    *,
    over: tuple[str, str] = STEP_TRAJECTORIES,
    healthy: dict[str, Range] | None = None,
) -> tuple[Metric, Metric]:
    """`name`/avg and /sum; `healthy` is of the average, a sum grows with the batch."""
    mean = f"{en} (mean over {over[0]})."
    mean_zh = f"{zh}（{over[1]}上的平均值）。"
    total = f"{en} (sum over {over[0]}; grows with the batch, so compare within one run only)."
    total_zh = f"{zh}（{over[1]}上的总和；随批量增大，只宜在同一次训练内比较）。"
    return (
        metric(f"{name}/avg", unit, mean, mean_zh, healthy=healthy),
        metric(f"{name}/sum", unit, total, total_zh, how=Aggregation.SUM),
    )
