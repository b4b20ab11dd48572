"""critic/: rewards and advantages, which need no value model, and what the value model of PPO does.

Definitions of the latter follow verl's `compute_data_metrics` and `compute_value_loss` (arXiv:2409.19256).
"""

from strop.schema.metric import Aggregation
from strop.tracing.catalogue.declare import metric, spread

_SCORED = ("the step's scored trajectories", "本步有得分的轨迹")
_TOKENS = (
    "the step's sampled tokens that have one, so that long answers weigh more",
    "本步参与训练的采样词元（回答越长权重越大）",
)

CRITIC = (
    *spread(
        "critic/rewards",
        "score",
        "Reward of a trajectory as it is trained on: the weighted sum of its reward functions, less what an "
        "overlong answer and, with kl_reward_coef, the distance to the reference cost",
        "参与训练的轨迹奖励：各奖励函数得分的加权和，再扣除过长回答的惩罚，以及（设置 kl_reward_coef 时）"
        "与参考模型的 KL",
        over=_SCORED,
    ),
    *spread(
        "critic/score",
        "score",
        "Score of a trajectory before any shaping: the weighted sum of its reward functions",
        "整形之前的轨迹得分：各奖励函数得分的加权和",
        over=_SCORED,
    ),
    metric(
        "critic/overlong_penalty/mean",
        "score",
        "What length took off the reward, 0 or below (mean over the scored trajectories trained on).",
        "因长度从奖励中扣除的部分，小于等于 0（参与训练且有得分的轨迹上的平均值）。",
    ),
    *spread(
        "critic/advantages",
        "",
        "Advantage: how much better a rollout did than its own group; with a critic, how much better a "
        "token was than expected, whitened over the step",
        "优势：该 rollout 比同组平均好多少；使用价值模型时为该词元比预期好多少，并在本步内白化",
        over=_TOKENS,
    ),
    *spread(
        "critic/returns",
        "",
        "Return. Of group methods it equals the advantage, since a rollout is rewarded once, at its end; of "
        "REINFORCE++ it is the discounted reward before whitening; with a critic the advantage before "
        "whitening plus the value: what the critic learns",
        "回报。组方法的奖励只在 rollout 结束时给出，故与优势相同；REINFORCE++ 为白化前的折扣奖励；"
        "使用价值模型时为白化前的优势加价值，即价值模型的学习目标",
        over=_TOKENS,
    ),
    *spread(
        "critic/values",
        "score",
        "The critic's value of the context of a sampled token at the step's start. Only with a critic",
        "步初价值模型对采样词元上下文的估值。仅当使用价值模型时存在",
        over=("the step's sampled tokens", "本步全部采样词元"),
    ),
    metric(
        "critic/vf_explained_var",
        "share",
        "How much of the returns the values explain: 1 - Var(return - value) / (Var(return) + 1e-5) over "
        "sampled tokens. 1 is perfect, 0 is what a constant explains, below 0 is worse. Only with a critic.",
        "价值对回报的解释程度：采样词元上的 1 - Var(回报 - 价值) / (Var(回报) + 1e-5)。1 为完美，"
        "0 相当于常数，负值更差。仅当使用价值模型时存在。",
        healthy={"ppo": (0.0, 1.0)},
    ),
    metric(
        "critic/vf_loss",
        "",
        "The critic's loss: half the squared distance of values to returns, clipped, mean over sampled "
        "tokens. Only with a critic.",
        "价值模型的损失：价值与回报之差平方的一半（带裁剪），对采样词元取平均。仅当使用价值模型时存在。",
    ),
    metric(
        "critic/vf_clipfrac",
        "share",
        "Share of sampled tokens on which clipping the value made its loss larger. Only with a critic.",
        "裁剪价值使损失变大的采样词元占比。仅当使用价值模型时存在。",
    ),
    metric(
        "critic/vpred_mean",
        "score",
        "Mean value over sampled tokens during the critic's update. Only with a critic.",
        "价值模型更新时采样词元上的平均价值。仅当使用价值模型时存在。",
    ),
    metric(
        "critic/grad_norm",
        "",
        "Global L2 norm of the critic's gradient before clipping. Only with a critic.",
        "裁剪前价值模型梯度的全局 L2 范数。仅当使用价值模型时存在。",
    ),
    metric(
        "critic/lr",
        "",
        "Learning rate of the critic in this step. Only with a critic.",
        "价值模型本步的学习率。仅当使用价值模型时存在。",
        how=Aggregation.LAST,
    ),
    metric(
        "critic/num_updates",
        "count",
        "Optimizer updates of the critic in the step, skipped ones not counted. Only with a critic.",
        "价值模型本步的优化器更新次数，不含跳过的。仅当使用价值模型时存在。",
        how=Aggregation.SUM,
    ),
    metric(
        "critic/skipped_updates",
        "count",
        "Updates of the critic that were not applied because a gradient was not finite. Only with a critic.",
        "价值模型因梯度非有限值而未执行的更新次数。仅当使用价值模型时存在。",
        how=Aggregation.SUM,
        healthy={"ppo": (0.0, 0.0)},
    ),
)
