"""fully_async/: sampling and learning beside each other, by verl's names (`volcengine/verl` @ b178a3c).

Unless `max_staleness` lets steps be sampled ahead, the two take turns: a step samples with the newest
weights and learns when its last reward is there. Then nothing is stale or sampled in parts, and those
metrics are not written. What verl measures and cannot be here stands in `ABSENT`, with the reason;
`docs/metrics.md` shows both.
"""

from strop.schema.metric import Aggregation
from strop.tracing.catalogue.declare import metric

_SECONDS = (
    "Seconds of one sample, from its first rollout to its last reward; its rollouts run side by side",
    "单个样本从首个 rollout 开始到最后一个奖励完成的秒数；其各 rollout 并行",
)
_OF_SECONDS = (
    ("avg", Aggregation.MEAN, "mean", "平均值"),
    ("max", Aggregation.MAX, "largest", "最大值"),
    ("min", Aggregation.MIN, "smallest", "最小值"),
    ("tp50", Aggregation.MEAN, "50th percentile", "第 50 百分位数"),
    ("tp95", Aggregation.MEAN, "95th percentile", "第 95 百分位数"),
    ("tp99", Aggregation.MEAN, "99th percentile", "第 99 百分位数"),
)

FULLY_ASYNC = (
    metric(
        "fully_async/count/current_param_version",
        "versions",
        "Policy version of the step's newest sampled token: optimizer updates so far.",
        "本步最新采样词元的策略版本，即此前的优化器更新次数。",
        how=Aggregation.LAST,
    ),
    metric(
        "fully_async/count/total_generated_samples",
        "count",
        "Samples that the run has rolled out and scored so far, those that dynamic sampling left out "
        "included.",
        "本次训练至今完成 rollout 与打分的样本数，含被动态采样剔除的。",
        how=Aggregation.LAST,
    ),
    metric(
        "fully_async/count/stale_samples_processed",
        "count",
        "Samples of the step with a token that is a policy version or more behind the weights it is learned "
        "from; only with max_staleness. verl counts over the whole run.",
        "本步含有落后于训练时权重一个及以上策略版本之词元的样本数；仅在 max_staleness 大于 0 时记录。"
        "verl 为全程累计。",
        how=Aggregation.SUM,
    ),
    metric(
        "fully_async/count/stale_trajectory_processed",
        "count",
        "As stale_samples_processed, counted in trajectories.",
        "同 stale_samples_processed，按轨迹计数。",
        how=Aggregation.SUM,
    ),
    *(
        metric(
            f"fully_async/processing_time/{last}",
            "s",
            f"{_SECONDS[0]} ({en} over the step's samples).",
            f"{_SECONDS[1]}（本步全部样本上的{zh}）。",
            how=how,
        )
        for last, how, en, zh in _OF_SECONDS
    ),
    metric(
        "fully_async/partial/total_partial_num",
        "count",
        "Trajectories whose tokens were sampled under more than one policy version.",
        "词元跨越多个策略版本采样的轨迹数。",
        how=Aggregation.SUM,
    ),
    metric(
        "fully_async/partial/partial_ratio",
        "share",
        "Share of trajectories whose tokens were sampled under more than one policy version.",
        "词元跨越多个策略版本采样的轨迹占比。",
    ),
    metric(
        "fully_async/partial/max_partial_span",
        "versions",
        "Largest difference of policy versions within a trajectory.",
        "单条轨迹内策略版本之差的最大值。",
        how=Aggregation.MAX,
    ),
    metric(
        "fully_async/trainer/idle_ratio",
        "share of time",
        "Share of the step in which the learner waits for rollouts and rewards.",
        "一步中训练端等待 rollout 与奖励的时间占比。",
    ),
    metric(
        "fully_async/rollouter/idle_ratio",
        "share of time",
        "Share of the step in which nothing is sampled: scoring, learning, publishing.",
        "一步中没有采样（打分、训练、同步权重）的时间占比。",
    ),
)

_NO_QUEUE = (
    "whole steps are sampled ahead, at most max_staleness of them: no single sample waits or is dropped",
    "以整步为单位提前采样，最多 max_staleness 步：没有单个样本排队或被丢弃",
)
_A_SETTING = (
    "a setting and no measurement: it stands in the job's resolved configuration",
    "是设置而非测量值，见任务的完整配置",
)
_NO_STALENESS = (
    "staleness is bounded in whole steps by max_staleness, which is a setting and no measurement",
    "陈旧度以整步为单位由 max_staleness 限定，它是设置而非测量值",
)

ABSENT: dict[str, tuple[str, str]] = {
    "fully_async/monitor/active_tasks_size": (
        "rollouts are counted by step: those under way belong to a step whose values are not recorded yet",
        "rollout 按步统计：进行中的 rollout 属于尚未记录指标的步",
    ),
    "fully_async/monitor/queue/pending_queue_size": (
        "prompts are drawn when a step asks for them and do not wait",
        "提示词在一步需要时才抽取，不排队",
    ),
    "fully_async/monitor/queue/cancel_queue_size": (
        "a rollout goes on under new weights, so none has to be resumed",
        "rollout 在新权重下继续进行，无需恢复",
    ),
    "fully_async/monitor/queue/mq_queue_size": _NO_QUEUE,
    "fully_async/count/staleness_samples": _NO_STALENESS,
    "fully_async/count/dropped_stale_samples": _NO_QUEUE,
    "fully_async/static/required_samples": _A_SETTING,
    "fully_async/static/max_required_samples": _NO_STALENESS,
    "fully_async/static/staleness_threshold": _NO_STALENESS,
    "fully_async/static/max_queue_size": _NO_QUEUE,
    "fully_async/static/max_concurrent_samples": _A_SETTING,
}
"""verl's names that no metric here answers to, each with the reason in English and Chinese."""
