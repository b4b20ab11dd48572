"""perf/: tokens, and tokens by time."""

from strop.schema.metric import Aggregation
from strop.tracing.catalogue.declare import metric

PERF = (
    metric(
        "perf/total_num_tokens",
        "tokens",
        "Prompt and response tokens of the step's trajectories, each trajectory's longest context once.",
        "本步全部轨迹的提示词与回答词元总数，每条轨迹取其最长上下文一次。",
        how=Aggregation.SUM,
    ),
    metric(
        "perf/sampled_tokens",
        "tokens",
        "Tokens the engine sampled for the step's trajectories.",
        "引擎为本步轨迹采样的词元总数。",
        how=Aggregation.SUM,
    ),
    metric(
        "perf/trained_tokens",
        "tokens",
        "Tokens that went through the learner, a prefix that a group shares counted once.",
        "经过训练端的词元总数；组内共享的前缀只计一次。",
        how=Aggregation.SUM,
    ),
    metric(
        "perf/loss_tokens",
        "tokens",
        "Sampled tokens that carried loss.",
        "参与损失计算的采样词元总数。",
        how=Aggregation.SUM,
    ),
    metric(
        "perf/prefix_hit_rate",
        "share",
        "Share of the prompt tokens whose keys and values the engine found in its cache.",
        "引擎在缓存中命中键值的提示词词元占比。",
    ),
    metric("perf/time_per_step", "s", "Same as timing/s/step.", "同 timing/s/step。"),
    metric(
        "perf/throughput",
        "tokens/s/device",
        "total_num_tokens divided by time_per_step and by the number of devices.",
        "total_num_tokens 除以 time_per_step 再除以设备数。",
    ),
    metric(
        "perf/sampling_tokens_per_s",
        "tokens/s",
        "sampled_tokens divided by the seconds of the rollout phase, function time included.",
        "sampled_tokens 除以 rollout 阶段的秒数（含函数用时）。",
    ),
)
