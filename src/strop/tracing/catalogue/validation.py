"""validation/: how good the policy is on held-out samples. `<source>` is `data` for the only dataset."""

from strop.tracing.catalogue.declare import metric

VALIDATION = (
    metric(
        "validation/<source>/reward/mean@1",
        "score",
        "Reward on the held-out samples, sampled greedily once each: mean over samples that were "
        "scored. A failed "
        "rollout is not a 0.",
        "在留出样本上的奖励，每个样本贪心采样一次：对有得分的样本取平均；失败的 rollout 不记为 0。",
    ),
    metric(
        "validation/<source>/reward/<name>/mean@1",
        "score",
        "Score of one reward function on the held-out samples: mean over samples it scored.",
        "单个奖励函数在留出样本上的得分：对它评过分的样本取平均。",
    ),
    metric(
        "validation/<source>/failed_ratio",
        "share",
        "Share of validation rollouts that were not scored.",
        "没有得分的验证 rollout 占比。",
        healthy={"*": (0.0, 0.02)},
    ),
    metric(
        "validation/<source>/response_length/mean",
        "tokens",
        "Tokens after the first prompt, as trajectory/response_length: mean over validation rollouts.",
        "首个提示词之后的词元数，同 trajectory/response_length：验证 rollout 上的平均值。",
    ),
    metric(
        "validation/<source>/response_length/clip_ratio",
        "share",
        "Share of validation rollouts with a turn cut by its token limit.",
        "有某一轮因词元上限被截断的验证 rollout 占比。",
        healthy={"*": (0.0, 0.1)},
    ),
    metric(
        "validation/<source>/loss",
        "",
        "Offline trainings: the loss on held-out rows, as actor/loss, one mean over all of them. The lower, "
        "the better.",
        "离线训练：留出行上的损失，定义同 actor/loss，对全部行取一次平均；越低越好。",
    ),
    metric(
        "validation/<source>/perplexity",
        "",
        "Offline trainings: exponential of the mean negative logprob of the held-out rows' taught tokens.",
        "离线训练：留出行所教词元平均负对数概率的指数。",
    ),
    metric(
        "validation/<source>/preference_accuracy",
        "share",
        "DPO: share of held-out pairs whose preferred answer has the larger implicit reward.",
        "DPO：留出偏好对中被选回答隐式奖励更大的占比。",
    ),
    metric(
        "validation/<source>/preference_margin",
        "nats",
        "DPO: implicit reward of the preferred answer less that of the rejected: mean over held-out pairs.",
        "DPO：被选与被拒回答的隐式奖励之差，对留出偏好对取平均。",
    ),
)
