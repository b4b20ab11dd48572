"""group/ and function/: how much signal the groups hold, and what failed."""

from strop.schema.metric import Aggregation
from strop.tracing.catalogue.declare import metric

GROUP = (
    metric(
        "group/frac_zero_std",
        "share",
        "Share of groups (of those with two survivors or more) whose rewards are all equal: no gradient.",
        "组内奖励全部相等的组占比（仅计至少两条有效轨迹的组）：没有梯度。",
        healthy={"*": (0.0, 0.5)},
    ),
    metric(
        "group/frac_all_good",
        "share",
        "Share of groups whose rewards are equal and at least 0.5: too easy.",
        "奖励全部相等且不低于 0.5 的组占比：题目过易。",
    ),
    metric(
        "group/frac_all_bad",
        "share",
        "Share of groups whose rewards are equal and below 0.5: too hard.",
        "奖励全部相等且低于 0.5 的组占比：题目过难。",
    ),
    metric(
        "group/frac_mixed",
        "share",
        "Share of groups with different rewards, the useful ones; with all_good and all_bad it adds up to 1.",
        "组内奖励有差异的组占比，即有用的组；与 all_good、all_bad 之和为 1。",
        healthy={"*": (0.5, 1.0)},
    ),
    metric(
        "group/pass@k/<k>",
        "share",
        "Chance that one of k answers to a sample scores 0.5 or"
        " more: 1 - C(n - c, k) / C(n, k) with c good ones of n "
        "(mean over the step's samples). Rising pass@k/1 with"
        " falling pass@k of more answers is lost variety.",
        "一个样本的 k 个回答中至少一个得分不低于 0.5 的概率：1 - C"
        "(n-c,k)/C(n,k)，n 个中 c 个合格（对本步样本取平均）。"
        "pass@k/1 上升而更大的 k 下降说明多样性丧失。",
    ),
    metric(
        "group/dropped",
        "count",
        "Groups with fewer than two scored rollouts, which have no baseline and are not trained on.",
        "有得分的 rollout 少于两条、没有基线而不参与训练的组数。",
        how=Aggregation.SUM,
        healthy={"*": (0.0, 0.0)},
    ),
    metric(
        "group/dropped_again",
        "count",
        "Samples whose groups were dropped for failures in each of their last two draws or more: the data "
        "drifts easy without them.",
        "最近两次或更多次抽取均因失败而被丢弃的样本数：缺了它们，数据会逐渐变易。",
        how=Aggregation.LAST,
        healthy={"*": (0.0, 0.0)},
    ),
    metric(
        "group/refill_rounds",
        "count",
        "Rounds of further prompts that dynamic sampling (filter_groups) asked for.",
        "动态采样（filter_groups）追加采样提示词的轮数。",
        how=Aggregation.SUM,
    ),
    metric(
        "group/filtered",
        "count",
        "Groups that dynamic sampling left out because their scores are all equal.",
        "动态采样因组内得分全部相等而剔除的组数。",
        how=Aggregation.SUM,
    ),
    metric(
        "group/trained",
        "count",
        "Groups left to train on after dynamic sampling; below batch_size when refilling did not suffice.",
        "动态采样之后用于训练的组数；补充采样仍不足时小于 batch_size。",
        how=Aggregation.SUM,
    ),
    metric(
        "function/error_rate/<code>",
        "share",
        "Share of the step's rollouts that failed for this reason after all attempts.",
        "用尽重试后因该原因失败的 rollout 占比。",
        healthy={"*": (0.0, 0.02)},
    ),
)
