"""trajectory/: lengths and turns of the step's rollouts, failed ones included."""

from strop.schema.metric import Aggregation
from strop.tracing.catalogue.declare import metric, spread

TRAJECTORY = (
    *spread(
        "trajectory/response_length",
        "tokens",
        "Tokens after the first prompt, tool and template tokens included, of the rollout's longest "
        "context; 0 when "
        "nothing was sampled",
        "首个提示词之后的词元数（含工具与模板词元），取该 rollout 最长的上下文；没有采样则为 0",
    ),
    *spread(
        "trajectory/response_length_non_aborted",
        "tokens",
        "Tokens after the first prompt, as response_length",
        "首个提示词之后的词元数，同 response_length",
        over=("trajectories that sampled something", "有采样的轨迹"),
    ),
    metric(
        "trajectory/response/aborted_ratio",
        "share",
        "Share of trajectories in which nothing was sampled.",
        "没有任何采样的轨迹占比。",
        healthy={"*": (0.0, 0.02)},
    ),
    metric(
        "trajectory/response_length/clip_ratio",
        "share",
        "Share of trajectories with a turn cut by its token limit (finish_reason length). More exact "
        "than verl's, "
        "which compares with the padded width and so counts the batch's longest answer.",
        "有某一轮因词元上限被截断（finish_reason 为 length）的轨迹占比。比 verl 更准确：verl "
        "与填充宽度比较，会把批内最长回答也算作截断。",
        healthy={"*": (0.0, 0.1)},
    ),
    metric(
        "trajectory/masked_ratio",
        "share",
        "Share of scored trajectories that leave the loss because an answer was cut off "
        "(truncation_policy mask).",
        "因回答被截断而退出损失计算的有得分轨迹占比（truncation_policy 为 mask）。",
        healthy={"*": (0.0, 0.1)},
    ),
    *spread(
        "trajectory/prompt_length",
        "tokens",
        "Tokens of the first turn's prompt",
        "首轮提示词的词元数",
        over=("trajectories with a turn", "至少有一轮的轨迹"),
    ),
    metric(
        "trajectory/prompt_length/clip_ratio",
        "share",
        "Share of trajectories whose first prompt reaches max_prompt_length. No prompt is ever cut.",
        "首轮提示词达到 max_prompt_length 的轨迹占比；提示词从不被截断。",
        healthy={"*": (0.0, 0.02)},
    ),
    *spread(
        "trajectory/num_turns",
        "count",
        "Chat calls of a rollout; verl counts the conversation's messages instead",
        "一次 rollout 的对话调用次数；verl 统计的是消息条数",
    ),
    *spread(
        "trajectory/sampled_tokens",
        "tokens",
        "Tokens that the model wrote, over all turns; only these carry loss",
        "模型在各轮中写出的词元数；只有这些词元参与损失",
    ),
    metric(
        "trajectory/num_sequences/mean",
        "count",
        "Trainable sequences a trained rollout gave: 1 when every turn extends the one before token "
        "for token.",
        "每个参与训练的 rollout 产生的训练序列数；若每一轮都逐词元延续上一轮则为 1。",
    ),
    metric(
        "trajectory/staleness/mean",
        "versions",
        "Policy versions by which a trajectory's oldest token"
        " is behind the step's newest token; 0 while sampling "
        "and learning take turns (mean over the step's trajectories).",
        "轨迹最旧词元落后于本步最新词元的策略版本数；采样与训练交替进行时为 0（对本步轨迹取平均）。",
        healthy={"*": (0.0, 1.0)},
    ),
    metric(
        "trajectory/staleness/max",
        "versions",
        "As trajectory/staleness/mean, of the stalest trajectory.",
        "同 trajectory/staleness/mean，取最陈旧的轨迹。",
        how=Aggregation.MAX,
    ),
)
