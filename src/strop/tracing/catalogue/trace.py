"""trace/: what agents and functions did, names that users choose among them."""

from strop.schema.metric import Aggregation
from strop.tracing.catalogue.declare import average, metric

TRACE = (
    metric(
        "trace/training/epoch",
        "count",
        "Epoch the step belongs to, from 0.",
        "该步所属的轮次，从 0 开始。",
        how=Aggregation.LAST,
    ),
    *average(
        "trace/num_llm_calls",
        "count",
        "Chat calls of a rollout's last attempt",
        "rollout 最后一次尝试中的模型调用次数",
    ),
    *average(
        "trace/success_rate/agent",
        "share",
        "1 for a rollout whose agent returned SUCCESS, else 0",
        "agent 返回 SUCCESS 的 rollout 记 1，否则记 0",
        healthy={"*": (0.95, 1.0)},
    ),
    *average(
        "trace/success_rate/reward",
        "share",
        "1 for a rollout that got a reward, else 0",
        "得到奖励的 rollout 记 1，否则记 0",
        over=("rollouts whose agent returned SUCCESS", "agent 返回 SUCCESS 的 rollout"),
        healthy={"*": (0.98, 1.0)},
    ),
    *average(
        "trace/attempts/agent",
        "count",
        "Attempts a rollout needed, the last one included",
        "rollout 所用的尝试次数，含最后一次",
        healthy={"*": (1.0, 1.2)},
    ),
    *average(
        "trace/attempts/reward",
        "count",
        "Calls of reward functions a rollout needed, those that were tried again included",
        "rollout 所用的奖励函数调用次数，含重试",
        over=("the trajectories that were scored or tried to be", "进入评分的轨迹"),
    ),
    metric(
        "trace/tool_call_count",
        "count",
        "Tool calls that the model asked for, a trajectory: mean over the step's trajectories.",
        "每条轨迹中模型发出的工具调用次数：本步全部轨迹上的平均值。",
    ),
    metric(
        "trace/rerendered_prompts",
        "count",
        "Follow-up prompts that could not keep the sampled ids, so that a new sequence began: the template "
        "or the agent changed what was said before.",
        "无法沿用已采样词元、因而另起序列的后续提示词数：模板或 agent 改动了之前的内容。",
        how=Aggregation.SUM,
        healthy={"*": (0.0, 0.0)},
    ),
    metric(
        "trace/tool_parse_errors",
        "count",
        "Answers whose tool call could not be read; the agent sees them as text.",
        "无法解析其中工具调用的回答数；agent 看到的是原文。",
        how=Aggregation.SUM,
    ),
    metric(
        "trace/refused_calls",
        "count",
        "Chat calls answered 4xx before any sampling.",
        "未采样即以 4xx 拒绝的模型调用数。",
        how=Aggregation.SUM,
        healthy={"*": (0.0, 0.0)},
    ),
    metric(
        "trace/aborted_calls",
        "count",
        "Chat calls that ended without a turn: client gone, rollout over, engine error.",
        "未产生轮次就结束的模型调用数：客户端断开、rollout 已结束或引擎出错。",
        how=Aggregation.SUM,
    ),
    metric(
        "trace/replayed_calls",
        "count",
        "Retries of a chat call that were answered from memory.",
        "由缓存直接回答的重试调用数。",
        how=Aggregation.SUM,
    ),
    metric(
        "trace/distillation/valid_token_rate",
        "share",
        "Share of the student's sampled tokens that the teacher scored. On-policy distillation only.",
        "教师打分的学生采样词元占比。仅用于在策略蒸馏。",
        healthy={"*": (0.99, 1.0)},
    ),
    metric(
        "trace/distillation/missing_token_rate",
        "share",
        "Share of the student's sampled tokens that the teacher could not score: beyond its vocabulary, or a "
        "logprob that is not finite. They teach nothing. On-policy distillation only.",
        "教师无法打分的学生采样词元占比：超出其词表，或对数概率非有限值；这些词元不产生梯度。仅用于在策略蒸馏。",
        healthy={"*": (0.0, 0.01)},
    ),
    metric(
        "trace/distillation/empty_response_rate",
        "share",
        "Share of the step's rollouts without any sampled token. On-policy distillation only.",
        "本步没有任何采样词元的 rollout 占比。仅用于在策略蒸馏。",
        healthy={"*": (0.0, 0.01)},
    ),
    *average(
        "trace/reward/<name>",
        "score",
        "Score of one reward function, unweighted",
        "单个奖励函数的得分（未加权）",
        over=("the trajectories it scored", "它评过分的轨迹"),
    ),
    metric(
        "trace/reward/<name>/bon",
        "score",
        "Best score of one reward function in a group, unweighted: mean over the step's groups. What the "
        "policy can do at its best of n_rollouts.",
        "单个奖励函数在组内的最高得分（未加权）：本步各组的平均值，即采样 n_rollouts 次的最好情况。",
    ),
    metric(
        "trace/reward/<name>/won",
        "score",
        "Worst score of one reward function in a group, unweighted: mean over the step's groups.",
        "单个奖励函数在组内的最低得分（未加权）：本步各组的平均值，即最差情况。",
    ),
    *average(
        "trace/reward_metrics/<name>/<metric>",
        "",
        "A metric that a reward function gave",
        "奖励函数给出的自定义指标",
        over=("the trajectories that have it", "含有该指标的轨迹"),
    ),
    metric(
        "trace/reward_metrics/<name>/<metric>/max",
        "",
        "A metric that a reward function gave (largest of the step).",
        "奖励函数给出的自定义指标（本步最大值）。",
        how=Aggregation.MAX,
    ),
    metric(
        "trace/reward_metrics/<name>/<metric>/min",
        "",
        "A metric that a reward function gave (smallest of the step).",
        "奖励函数给出的自定义指标（本步最小值）。",
        how=Aggregation.MIN,
    ),
    *average(
        "trace/rollout_metrics/<metric>",
        "",
        "A metric that a rollout function gave",
        "rollout 函数给出的自定义指标",
        over=("the trajectories that have it", "含有该指标的轨迹"),
    ),
)
