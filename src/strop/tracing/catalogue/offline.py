"""lm/ and dpo/: what the offline trainings minimise. Their total is actor/loss, beside grad_norm and lr."""

from strop.tracing.catalogue.declare import metric

OFFLINE = (
    metric(
        "lm/loss",
        "nats/token",
        "Negative logprob of the taught tokens: mean over the step's tokens, each weighing what its answer "
        "weighs (loss_weight). In DPO only over answers with lm_loss_mask.",
        "所教词元的负对数概率：对本步词元按其回答的权重（loss_weight）取加权平均；"
        "DPO 中只含 lm_loss_mask 的回答。",
    ),
    metric(
        "lm/perplexity",
        "",
        "Exponential of lm/loss: among how many equally likely tokens the policy seems to choose.",
        "lm/loss 的指数：相当于策略在多少个等可能的词元中选择。",
    ),
    metric(
        "dpo/loss",
        "",
        "Preference loss: mean over the step's pairs. ln 2 = 0.693 before the first update, unless dpo_loss "
        "is ipo.",
        "偏好损失：对本步的偏好对取平均。首次更新前为 ln 2 = 0.693（dpo_loss 为 ipo 时除外）。",
    ),
    metric(
        "dpo/rewards/chosen",
        "nats",
        "Implicit reward of preferred answers, dpo_beta times (policy - reference logprob): mean over pairs. "
        "May fall while the margin grows.",
        "被选回答的隐式奖励，即 dpo_beta ×（策略 - 参考对数概率）：对偏好对取平均。间隔增大时它也可能下降。",
    ),
    metric(
        "dpo/rewards/rejected",
        "nats",
        "Implicit reward of rejected answers: mean over pairs.",
        "被拒回答的隐式奖励：对偏好对取平均。",
    ),
    metric(
        "dpo/rewards/margin",
        "nats",
        "Implicit reward of the preferred answer less that of the rejected one: mean over pairs. 0 before "
        "the first update.",
        "被选与被拒回答的隐式奖励之差：对偏好对取平均。首次更新前为 0。",
    ),
    metric(
        "dpo/rewards/accuracy",
        "share",
        "Share of pairs whose preferred answer has the larger implicit reward.",
        "被选回答隐式奖励更大的偏好对占比。",
    ),
)
